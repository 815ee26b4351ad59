"""Models of scikit-learn, exported by skl2onnx, against the library's own predictions: labels equal, probabilities
and values within 1e-5."""

import warnings

import numpy as np
import onnx
import pytest

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed: its models are not compared")
skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed: scikit-learn's models are not compared")

from ml_case import verify, write  # noqa: E402
from sklearn import (  # noqa: E402
    compose, datasets, discriminant_analysis, ensemble, feature_extraction, impute, linear_model, mixture,
    multiclass, naive_bayes, neighbors, neural_network, pipeline, preprocessing, svm, tree,
)
from sklearn.cluster import KMeans, MiniBatchKMeans  # noqa: E402
from sklearn.decomposition import PCA, TruncatedSVD  # noqa: E402
from sklearn.feature_selection import SelectKBest, VarianceThreshold  # noqa: E402
from skl2onnx import to_onnx  # noqa: E402
from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType  # noqa: E402

warnings.filterwarnings("ignore")
make_attribute = onnx.helper.make_attribute


@pytest.fixture(autouse=True)
def numpy_attributes(monkeypatch):
    """The exporter hands numpy's arrays and numbers to onnx, which takes lists and numbers of Python only."""

    def plain(key, value, *args, **kwargs):
        if isinstance(value, np.ndarray):
            value = value.tolist()
        if isinstance(value, list):
            value = [v.item() if isinstance(v, np.generic) else v for v in value]
            value = [int(v) if isinstance(v, bool) else v for v in value]
        return make_attribute(key, value, *args, **kwargs)

    monkeypatch.setattr(onnx.helper, "make_attribute", plain)


def data(classes=2, n=300, columns=8, seed=0):
    x, y = datasets.make_classification(n, columns, n_informative=5, n_classes=classes, random_state=seed)
    return x.astype(np.float32), y


def regression(targets=1):
    x, y = datasets.make_regression(300, 8, n_targets=targets, noise=3.0, random_state=1)
    return x.astype(np.float32), (y / 50).astype(np.float32)


CLASSIFIERS = {
    "logistic": linear_model.LogisticRegression(max_iter=300),
    "logistic_cv": linear_model.LogisticRegressionCV(Cs=3, max_iter=300),
    "sgd_log": linear_model.SGDClassifier(loss="log_loss", random_state=0),
    "sgd_hinge": linear_model.SGDClassifier(random_state=0),
    "perceptron": linear_model.Perceptron(random_state=0),
    "ridge": linear_model.RidgeClassifier(),
    "svc_rbf": svm.SVC(random_state=0),
    "svc_poly": svm.SVC(kernel="poly", random_state=0),
    "svc_sigmoid": svm.SVC(kernel="sigmoid", random_state=0),
    "nu_svc": svm.NuSVC(random_state=0),
    "tree": tree.DecisionTreeClassifier(max_depth=6, random_state=0),
    "tree_deep": tree.DecisionTreeClassifier(random_state=0),
    "extra_tree": tree.ExtraTreeClassifier(random_state=0),
    "forest": ensemble.RandomForestClassifier(20, random_state=0),
    "forest_flat": ensemble.RandomForestClassifier(30, max_depth=5, random_state=0),
    "extra_trees": ensemble.ExtraTreesClassifier(10, max_depth=7, random_state=0),
    "boosting": ensemble.GradientBoostingClassifier(n_estimators=20, random_state=0),
    "hist_boosting": ensemble.HistGradientBoostingClassifier(max_iter=20, random_state=0),
    "ada_boost": ensemble.AdaBoostClassifier(n_estimators=10, random_state=0),
    "bagging": ensemble.BaggingClassifier(tree.DecisionTreeClassifier(max_depth=4), n_estimators=5, random_state=0),
    "stacking": ensemble.StackingClassifier([("a", linear_model.LogisticRegression()),
                                             ("b", tree.DecisionTreeClassifier(max_depth=3, random_state=0))], cv=3),
    "gaussian_nb": naive_bayes.GaussianNB(),
    "bernoulli_nb": naive_bayes.BernoulliNB(),
    "neighbors": neighbors.KNeighborsClassifier(5),
    "lda": discriminant_analysis.LinearDiscriminantAnalysis(),
    "qda": discriminant_analysis.QuadraticDiscriminantAnalysis(reg_param=0.1),
    "mlp": neural_network.MLPClassifier((12, 6), max_iter=60, random_state=0),
    "one_vs_rest": multiclass.OneVsRestClassifier(linear_model.LogisticRegression()),
}
REGRESSORS = {
    "linear": linear_model.LinearRegression(), "ridge": linear_model.Ridge(), "lasso": linear_model.Lasso(0.01),
    "elastic": linear_model.ElasticNet(0.01), "lars": linear_model.Lars(), "bayes": linear_model.BayesianRidge(),
    "huber": linear_model.HuberRegressor(max_iter=500), "sgd": linear_model.SGDRegressor(random_state=0),
    "ransac": linear_model.RANSACRegressor(random_state=0), "theil_sen": linear_model.TheilSenRegressor(random_state=0),
    "svr": svm.SVR(), "nu_svr": svm.NuSVR(), "linear_svr": svm.LinearSVR(random_state=0, max_iter=5000),
    "tree": tree.DecisionTreeRegressor(max_depth=7, random_state=0),
    "forest": ensemble.RandomForestRegressor(20, random_state=0),
    "forest_flat": ensemble.RandomForestRegressor(20, max_depth=6, random_state=0),
    "extra_trees": ensemble.ExtraTreesRegressor(10, max_depth=6, random_state=0),
    "boosting": ensemble.GradientBoostingRegressor(n_estimators=20, random_state=0),
    "hist_boosting": ensemble.HistGradientBoostingRegressor(max_iter=20, random_state=0),
    "ada_boost": ensemble.AdaBoostRegressor(n_estimators=5, random_state=0),
    "bagging": ensemble.BaggingRegressor(n_estimators=5, random_state=0),
    "voting": ensemble.VotingRegressor([("a", linear_model.Ridge()), ("b", linear_model.LinearRegression())]),
    "neighbors": neighbors.KNeighborsRegressor(5),
}


def expected(model, x):
    labels = model.predict(x)
    if hasattr(model, "predict_proba"):
        scores = model.predict_proba(x)
    else:
        scores = model.decision_function(x)
        if scores.ndim == 1:
            scores = np.stack([-scores, scores], axis=1)
    return labels, scores.astype(np.float32)


def check_classifier(churon, folder, model, x, y, atol=1e-5, **options):
    model = sklearn.base.clone(model).fit(x, y)
    rows = x[:100]
    options = {"zipmap": False, **options}
    if not hasattr(model, "predict_proba"):
        options["raw_scores"] = True
    exported = to_onnx(model, rows[:1], options={id(model): options})
    labels, scores = expected(model, rows)
    if any(n.op_type == "ArrayFeatureExtractor" and n.output[0] == "label" for n in exported.graph.node):
        labels = labels.reshape(1, -1)  # that operator makes a row of a vector
    write(folder, exported, [rows], [labels, scores])
    wrong = verify(churon, folder, atol)
    assert wrong is None, wrong


# The exporter asks for SOFTMAX of (-s, s) where the library takes the logistic function of s.
NOT_AS_EXPORTED = {("lda", 2)}


@pytest.mark.parametrize("name,classes", [(n, c) for n in CLASSIFIERS for c in (2, 3) if (n, c) not in NOT_AS_EXPORTED])
def test_classifiers(churon, tmp_path, name, classes):
    x, y = data(classes)
    check_classifier(churon, tmp_path, CLASSIFIERS[name], x, y)


@pytest.mark.parametrize("name", list(REGRESSORS))
def test_regressors(churon, tmp_path, name):
    x, y = regression()
    model = sklearn.base.clone(REGRESSORS[name]).fit(x, y)
    write(tmp_path, to_onnx(model, x[:1]), [x[:100]], [model.predict(x[:100]).reshape(-1, 1).astype(np.float32)])
    wrong = verify(churon, tmp_path, 1e-5, 1e-5)
    assert wrong is None, wrong


@pytest.mark.parametrize("name", ["linear", "tree", "forest", "ridge"])
def test_several_targets(churon, tmp_path, name):
    x, y = regression(3)
    model = sklearn.base.clone(REGRESSORS[name]).fit(x, y)
    write(tmp_path, to_onnx(model, x[:1]), [x[:100]], [model.predict(x[:100]).astype(np.float32)])
    wrong = verify(churon, tmp_path, 1e-5, 1e-5)
    assert wrong is None, wrong


@pytest.mark.parametrize("name", ["logistic", "forest_flat", "svc_rbf", "boosting", "gaussian_nb"])
@pytest.mark.parametrize("classes", [2, 3])
def test_labels_of_text(churon, tmp_path, name, classes):
    x, y = data(classes)
    check_classifier(churon, tmp_path, CLASSIFIERS[name], x, np.array(["no", "yes", "\u00fcnknown"])[y])


@pytest.mark.parametrize("labels", [[-1, 1], [7, 3], [0, 5]])
@pytest.mark.parametrize("name", ["logistic", "forest_flat", "boosting", "svc_rbf", "hist_boosting"])
def test_labels_that_are_no_positions(churon, tmp_path, name, labels):
    x, y = data(2)
    check_classifier(churon, tmp_path, CLASSIFIERS[name], x, np.array(labels)[y])


@pytest.mark.parametrize("labels", [[4, 9], ["no", "yes"]])
def test_maps_of_probabilities(churon, tmp_path, labels):
    """As the exporter does unless it is told otherwise: a list of maps from labels to probabilities."""
    x, y = data(2)
    model = CLASSIFIERS["logistic"].fit(x, np.array(labels)[y])
    scores = [{labels[i]: p[i] for i in (0, 1)} for p in model.predict_proba(x[:20])]
    write(tmp_path, to_onnx(model, x[:1]), [x[:20]], [model.predict(x[:20]), scores])
    wrong = verify(churon, tmp_path)
    assert wrong is None, wrong


def test_missing_values(churon, tmp_path):
    x, y = data(2)
    x[np.random.default_rng(0).random(x.shape) < 0.2] = np.nan
    check_classifier(churon, tmp_path / "h", CLASSIFIERS["hist_boosting"], x, y)  # of other trees it is not exported
    steps = pipeline.make_pipeline(impute.SimpleImputer(), preprocessing.StandardScaler(), linear_model.LogisticRegression())
    check_classifier(churon, tmp_path / "p", steps, x, y)


TRANSFORMERS = {
    "standard": preprocessing.StandardScaler(), "min_max": preprocessing.MinMaxScaler(),
    "max_abs": preprocessing.MaxAbsScaler(), "robust": preprocessing.RobustScaler(), "l1": preprocessing.Normalizer("l1"),
    "l2": preprocessing.Normalizer("l2"), "max": preprocessing.Normalizer("max"),
    "binarizer": preprocessing.Binarizer(threshold=0.25), "polynomial": preprocessing.PolynomialFeatures(2),
    "bins": preprocessing.KBinsDiscretizer(4, encode="onehot-dense", quantile_method="averaged_inverted_cdf"),
    "power": preprocessing.PowerTransformer(), "pca": PCA(3), "svd": TruncatedSVD(3), "k_best": SelectKBest(k=3),
    "variance": VarianceThreshold(0.9),
}


@pytest.mark.parametrize("name", list(TRANSFORMERS))
def test_transformers(churon, tmp_path, name):
    x, y = data(3)
    model = sklearn.base.clone(TRANSFORMERS[name]).fit(x, y)
    want = np.asarray(model.transform(x[:100])).astype(np.float32)
    write(tmp_path, to_onnx(model, x[:1]), [x[:100]], [want])
    wrong = verify(churon, tmp_path, 1e-5, 1e-5)
    assert wrong is None, wrong


def frame():
    rng = np.random.default_rng(3)
    n = 400
    numbers = rng.normal(size=(n, 3)).astype(np.float32)
    words = rng.choice(["red", "green", "blue", "\u00e9t\u00e9"], n).reshape(-1, 1).astype(object)
    codes = rng.integers(0, 6, (n, 1))
    y = (numbers[:, 0] + (words[:, 0] == "red") + codes[:, 0] / 3 + rng.normal(size=n) > 1).astype(int)
    return numbers, words, codes, y


def test_pipeline_of_columns(churon, tmp_path):
    """Numbers, words and codes; words and codes that were not there in training are a row of zeros."""
    import pandas

    numbers, words, codes, y = frame()
    table = pandas.DataFrame({"a": numbers[:, 0], "b": numbers[:, 1], "c": numbers[:, 2], "w": words[:, 0], "k": codes[:, 0]})
    columns = compose.ColumnTransformer([
        ("n", preprocessing.StandardScaler(), ["a", "b", "c"]),
        ("w", preprocessing.OneHotEncoder(handle_unknown="ignore"), ["w"]),
        ("k", preprocessing.OneHotEncoder(handle_unknown="ignore"), ["k"]),
    ])
    model = pipeline.make_pipeline(columns, linear_model.LogisticRegression()).fit(table, y)
    types = [(c, FloatTensorType([None, 1])) for c in "abc"]
    types += [("w", StringTensorType([None, 1])), ("k", Int64TensorType([None, 1]))]
    exported = to_onnx(model, initial_types=types, options={id(model): {"zipmap": False}})
    rows = table[:100].copy()
    rows.loc[3, "w"] = "never seen"
    rows.loc[5, "k"] = 99
    inputs = [rows[[c]].to_numpy(np.float32) for c in "abc"]
    inputs += [rows[["w"]].to_numpy(object), rows[["k"]].to_numpy(np.int64)]
    write(tmp_path, exported, inputs, [model.predict(rows), model.predict_proba(rows).astype(np.float32)])
    wrong = verify(churon, tmp_path)
    assert wrong is None, wrong


def test_encoders(churon, tmp_path):
    _, words, codes, _ = frame()
    for i, (model, x, dtype) in enumerate((
        (preprocessing.OrdinalEncoder(), words, np.float32), (preprocessing.OrdinalEncoder(), codes, np.float32),
        (preprocessing.OneHotEncoder(sparse_output=False), words, np.float32),
        (preprocessing.LabelEncoder(), words.ravel(), np.int64), (preprocessing.LabelBinarizer(), codes.ravel(), np.int64),
    )):
        model.fit(x)
        rows = x[:50]
        kind = StringTensorType if x.dtype == object else Int64TensorType
        exported = to_onnx(model, initial_types=[("X", kind([None, *x.shape[1:]]))])
        want = np.asarray(model.transform(rows)).astype(dtype)
        write(tmp_path / str(i), exported, [rows], [want])
        wrong = verify(churon, tmp_path / str(i))
        assert wrong is None, (i, wrong)


def test_text(churon, tmp_path):
    """Counts and weights of words and pairs of words."""
    texts = np.array(["the quick brown fox", "jumps over the lazy dog", "the dog", "quick quick fox the dog", "nothing"])
    for i, model in enumerate((
        feature_extraction.text.CountVectorizer(), feature_extraction.text.CountVectorizer(ngram_range=(1, 2)),
        feature_extraction.text.TfidfVectorizer(), feature_extraction.text.TfidfVectorizer(ngram_range=(1, 2), norm=None),
    )):
        model.fit(texts)
        exported = to_onnx(model, initial_types=[("X", StringTensorType([None]))],
                           options={id(model): {"tokenexp": "[a-zA-Z0-9_]+"}})
        write(tmp_path / str(i), exported, [texts], [model.transform(texts).toarray().astype(np.float32)])
        wrong = verify(churon, tmp_path / str(i))
        assert wrong is None, (i, wrong)


def test_several_labels(churon, tmp_path):
    x, y = datasets.make_multilabel_classification(200, 6, n_classes=3, random_state=0)
    x = x.astype(np.float32)
    model = multiclass.OneVsRestClassifier(linear_model.LogisticRegression(max_iter=500)).fit(x, y)
    exported = to_onnx(model, x[:1], options={id(model): {"zipmap": False}})
    write(tmp_path, exported, [x[:60]], [model.predict(x[:60]), model.predict_proba(x[:60]).astype(np.float32)])
    wrong = verify(churon, tmp_path)
    assert wrong is None, wrong


def test_clusters_and_outliers(churon, tmp_path):
    x, _ = data(3)
    for i, model in enumerate((KMeans(3, n_init=1, random_state=0), MiniBatchKMeans(3, n_init=1, random_state=0))):
        model.fit(x)
        write(tmp_path / str(i), to_onnx(model, x[:1]), [x[:50]],
              [model.predict(x[:50]).astype(np.int64), model.transform(x[:50]).astype(np.float32)])
        wrong = verify(churon, tmp_path / str(i), 1e-4)
        assert wrong is None, (i, wrong)
    model = mixture.GaussianMixture(2, reg_covar=0.05, random_state=0).fit(x)
    write(tmp_path / "g", to_onnx(model, x[:1]), [x[:50]], [model.predict(x[:50]).reshape(-1, 1), model.predict_proba(x[:50]).astype(np.float32)])
    assert verify(churon, tmp_path / "g", 1e-4) is None
    model = svm.OneClassSVM().fit(x)
    write(tmp_path / "o", to_onnx(model, x[:1]), [x[:50]],
          [model.predict(x[:50]).reshape(-1, 1), model.decision_function(x[:50]).reshape(-1, 1).astype(np.float32)])
    wrong = verify(churon, tmp_path / "o")
    assert wrong is None, wrong

