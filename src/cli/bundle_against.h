/* bundle_against.h: two bundles over the same records: what would change for users. */
#ifndef CLI_BUNDLE_AGAINST_H
#define CLI_BUNDLE_AGAINST_H

#include "cli/bundle_records.h"

typedef struct bundle_against {
    arg_common common;
    const char *other, *data;
    double timeout;  /* of loading, and of each run; 0: any time */
    arg_list slices; /* fields of the records */
    pipeline *p;     /* the new one; `other` names the one before */
} bundle_against;

/* Exit status: no if a label changed, a record was refused by one only, or a number moved beyond the new
 * bundle's tolerance. */
int bundle_against_run(bundle_against *a);

#endif
