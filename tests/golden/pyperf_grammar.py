"""What pyperf's loader asks of a file of format 1.0, written down from its documentation and its behaviour; pyperf itself is
no package of Debian 12."""
import datetime

# Metadata that pyperf knows by name: types, and what else must hold.
KNOWN = {
    "loops": (int, lambda value: value >= 1),
    "inner_loops": (int, lambda value: value >= 1),
    "duration": ((int, float), lambda value: value >= 0),
    "unit": (str, lambda value: value in ("second", "byte", "integer")),
    "date": (str, lambda value: datetime.datetime.fromisoformat(value).tzinfo is None),
}
# What all runs of a benchmark must agree in.
AGREED = ("aslr", "cpu_count", "cpu_model_name", "hostname", "inner_loops", "name", "platform", "python_executable",
          "python_implementation", "python_unicode", "python_version", "unit")


def check_metadata(metadata, where):
    for name, value in metadata.items():
        types, holds = KNOWN.get(name, ((int, float, str), lambda value: True))
        if isinstance(value, bool) or not isinstance(value, types) or not holds(value):
            yield f"{where}: metadata {name} is {value!r}"
        if isinstance(value, str) and (not value.strip() or "\n" in value or "\r" in value):
            yield f"{where}: metadata {name} is empty or has a line break"


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check_run(run, where):
    if not run.get("values") and not run.get("warmups"):
        yield f"{where}: neither values nor warm-ups"
    for value in run.get("values", ()):
        if not is_number(value) or not value > 0:
            yield f"{where}: value {value!r}"
    for loops, value in run.get("warmups", ()):
        if not isinstance(loops, int) or loops < 1 or not is_number(value) or value < 0:
            yield f"{where}: warm-up {loops!r}, {value!r}"


def check_benchmark(benchmark, suite_metadata):
    whole = dict(suite_metadata, **benchmark.get("metadata", {}))
    where = whole.get("name", "")
    if not where:
        yield "a benchmark without a name"
    if not benchmark["runs"]:
        yield f"{where}: no runs"
    merged = [dict(whole, **run.get("metadata", {})) for run in benchmark["runs"]]
    for run, metadata in zip(benchmark["runs"], merged):
        yield from check_run(run, where)
        yield from check_metadata(metadata, where)
    for key in AGREED:
        if len({metadata.get(key) for metadata in merged}) > 1:
            yield f"{where}: runs differ in {key}"


def check_suite(suite):
    """Yields what pyperf would refuse."""
    if suite.get("version") != "1.0":
        yield f"version {suite.get('version')!r}"
    metadata = suite.get("metadata", {})
    yield from check_metadata(metadata, "suite")
    if not suite["benchmarks"]:
        yield "no benchmarks"
    names = [benchmark["metadata"]["name"] for benchmark in suite["benchmarks"]]
    if len(names) != len(set(names)):
        yield "two benchmarks of one name"
    for benchmark in suite["benchmarks"]:
        yield from check_benchmark(benchmark, metadata)
