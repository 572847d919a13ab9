"""Archive Anserini's classes beside its jar as Java has loaded them: each Java then starts in half the time or less.

A Java of another version, or for another jar, ignores the archive.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from beirgrid.search import lucene


def loaded(folder: Path) -> str:
    """Return the names of the classes that an index and a search of one document load, one a line."""
    documents = folder / "documents"
    index = folder / "index"
    documents.mkdir()
    (documents / "corpus.jsonl").write_text('{"_id": "d", "title": "", "text": "a text"}\n')
    os.environ["JAVA_TOOL_OPTIONS"] = f"-XX:DumpLoadedClassList={folder}/names-index"
    lucene.build_index(documents, index, "flat", "en", threads=1, memory_mb=500)
    os.environ["JAVA_TOOL_OPTIONS"] = f"-XX:DumpLoadedClassList={folder}/names-search"
    searcher = lucene.Searcher(index, fields="flat", language="en", k1=0.9, b=0.4, memory_mb=500)
    searcher.search_all({"q": "text"}, 10, threads=1)
    del os.environ["JAVA_TOOL_OPTIONS"]
    # The search's Java still runs, and may have written a part of a line.
    whole = [path.read_text().rpartition("\n")[0] for path in sorted(folder.glob("names-*"))]
    lines = "\n".join(whole).splitlines()
    # Each list numbers its classes; "source" marks those of other class loaders, which need the numbers.
    return "\n".join(dict.fromkeys(line.partition(" id: ")[0] for line in lines if " source: " not in line))


def main() -> None:
    """Write the archive."""
    jar = lucene.jar().absolute()
    archive = jar.with_suffix(".jsa")
    new = jar.with_suffix(".new")
    archive.unlink(missing_ok=True)
    with TemporaryDirectory() as folder:
        names = Path(folder, "all")
        names.write_text(loaded(Path(folder)))
        dump = [lucene.java(), "-Xshare:dump", f"-XX:SharedClassListFile={names}", f"-XX:SharedArchiveFile={new}"]
        subprocess.run([*dump, "-Xlog:cds=off", "-cp", jar], check=True)
    new.rename(archive)


if __name__ == "__main__":
    main()
