"""Where each artifact stands, relative to the working directory: one pattern per kind of file.

The rules use the patterns as outputs; the grid fills them in to name inputs.
"""

CORPUS = "results/corpora/{corpus}/corpus.parquet"
CORPUS_RECORD = "results/corpora/{corpus}/corpus.json"
QUERIES = "results/datasets/{dataset}/queries.parquet"
QRELS = "results/datasets/{dataset}/qrels.tsv"
DATASET_RECORD = "results/datasets/{dataset}/dataset.json"
CHECKPOINT = "results/models/{model}/checkpoint"
MODEL_RECORD = "results/models/{model}/model.json"
TRAINING_QUERIES = "results/training/{model}/queries.parquet"
TRAINING_QUERIES_RECORD = "results/training/{model}/queries.json"
NEGATIVES = "results/training/{model}/negatives.parquet"
NEGATIVES_RECORD = "results/training/{model}/negatives.json"
MARGINS = "results/training/{model}/margins.parquet"
MARGINS_RECORD = "results/training/{model}/margins.json"
# A shard of vectors, and of its index, without the suffix that the model's family gives it.
EMBEDDINGS = "results/embeddings/{model}/{corpus}/{shard}"
EMBEDDINGS_RECORD = "results/embeddings/{model}/{corpus}/{shard}.json"
EXPANSIONS = "results/expansions/{model}/{corpus}/{shard}.parquet"
EXPANSIONS_RECORD = "results/expansions/{model}/{corpus}/{shard}.json"
LUCENE = "results/indexes/{index}/{corpus}/lucene"
LUCENE_RECORD = "results/indexes/{index}/{corpus}/lucene.json"
INDEXES = "results/indexes/{model}/{corpus}/{shard}"
SHARD_RECORD = "results/indexes/{model}/{corpus}/{shard}.json"
RUN = "results/runs/{system}/{dataset}.run.gz"
RUN_RECORD = "results/runs/{system}/{dataset}.json"
PAIRS = "results/pairs/{reranker}/{dataset}"
PAIRS_RECORD = "results/pairs/{reranker}/{dataset}/{first}.json"
METRICS = "results/metrics/{system}/{dataset}.json"
PER_QUERY = "results/metrics/{system}/{dataset}.per-query.parquet"
SCORES = "results/tables/scores.csv"
VERDICTS = "results/tables/verdicts.csv"
COSTS = "results/tables/costs.csv"
GRID_TABLE = "results/tables/{metric}.{format}"
TABLES_RECORD = "results/tables/tables.json"
REPORT = "results/report/index.html"
REPORT_RECORD = "results/report/report.json"


def expand_made(pattern: str, dataset: str, corpus: str, shards: int) -> list[str]:
    """Fill in dataset and corpus in the pattern of a record, once per shard if it has shards."""
    filled = pattern.replace("{dataset}", dataset).replace("{corpus}", corpus)
    if "{shard}" not in filled:
        return [filled]
    return [filled.replace("{shard}", str(shard)) for shard in range(shards)]
