/* process.h: what the process takes of the machine. */
#ifndef OBSERVE_PROCESS_H
#define OBSERVE_PROCESS_H

double process_resident_bytes(void); /* 0 where the system does not say */

#endif
