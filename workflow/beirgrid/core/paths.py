"""Where each artifact stands, relative to the working directory: one pattern per kind of file.

The rules use the patterns as outputs; the grid fills them in to name inputs.
"""

CORPUS = "results/corpora/{corpus}/corpus.parquet"
CORPUS_MADE = "results/corpora/{corpus}/corpus.json"
QUERIES = "results/datasets/{dataset}/queries.parquet"
QRELS = "results/datasets/{dataset}/qrels.tsv"
DATASET_MADE = "results/datasets/{dataset}/dataset.json"
CHECKPOINT = "results/models/{model}/checkpoint"
MODEL_MADE = "results/models/{model}/model.json"
TRAINING_QUERIES = "results/training/{model}/queries.parquet"
TRAINING_QUERIES_MADE = "results/training/{model}/queries.json"
NEGATIVES = "results/training/{model}/negatives.parquet"
NEGATIVES_MADE = "results/training/{model}/negatives.json"
MARGINS = "results/training/{model}/margins.parquet"
MARGINS_MADE = "results/training/{model}/margins.json"
EMBEDDINGS = "results/embeddings/{model}/{corpus}/{shard}.npy"
TOKENS = "results/embeddings/{model}/{corpus}/{shard}.tokens"
EMBEDDINGS_MADE = "results/embeddings/{model}/{corpus}/{shard}.json"
EXPANSIONS = "results/expansions/{model}/{corpus}/{shard}.parquet"
EXPANSIONS_MADE = "results/expansions/{model}/{corpus}/{shard}.json"
LUCENE = "results/indexes/{index}/{corpus}/lucene"
LUCENE_MADE = "results/indexes/{index}/{corpus}/lucene.json"
SPARSE = "results/embeddings/{model}/{corpus}/{shard}.npz"
FAISS = "results/indexes/{model}/{corpus}/{shard}.faiss"
IMPACT = "results/indexes/{model}/{corpus}/{shard}.impact"
SHARD_MADE = "results/indexes/{model}/{corpus}/{shard}.json"
RUN = "results/runs/{system}/{dataset}.run.gz"
RUN_MADE = "results/runs/{system}/{dataset}.json"
PAIRS = "results/pairs/{reranker}/{dataset}"
PAIRS_MADE = "results/pairs/{reranker}/{dataset}/{first}.json"
METRICS = "results/metrics/{system}/{dataset}.json"
PER_QUERY = "results/metrics/{system}/{dataset}.per-query.parquet"
SCORES = "results/tables/scores.csv"
VERDICTS = "results/tables/verdicts.csv"
COSTS = "results/tables/costs.csv"
GRID_TABLE = "results/tables/{metric}.{format}"
TABLES_MADE = "results/tables/tables.json"
REPORT = "results/report/index.html"
REPORT_MADE = "results/report/report.json"


def expand_made(pattern: str, dataset: str, corpus: str, shards: int) -> list[str]:
    """Fill in dataset and corpus in the pattern of a record, once per shard if it has shards."""
    filled = pattern.replace("{dataset}", dataset).replace("{corpus}", corpus)
    if "{shard}" not in filled:
        return [filled]
    return [filled.replace("{shard}", str(shard)) for shard in range(shards)]
