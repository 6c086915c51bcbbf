"""What the files must hold for the plots: a file of a different form is refused, with the place and the wrong value."""

import json
import math
import re

MOST_DEPTH, MOST_BYTES = 32, 1 << 28  # of a file, as the program reads
MOST_NUMBER = 1e24  # more than any run writes; plots compute with squares and products of numbers
HALF_A_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")
LONGEST_SHOWN = 60  # characters of a wrong value


class WrongForm(ValueError):
    """The text names the place in the file and the value."""


class Map:
    """An object with any keys, and values of one form."""

    def __init__(self, values):
        self.values = values


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


# Forms of single values: a name for the error, and the test.
NUMBER = "a number", _is_number
SPAN = "a number of at least 0", lambda value: _is_number(value) and value >= 0
SPAN_OR_NULL = "a number of at least 0, or null", lambda value: value is None or (_is_number(value) and value >= 0)
COUNT = "a whole number of at least 0", lambda value: _is_number(value) and value >= 0 and value == int(value)
TEXT = "a text", lambda value: isinstance(value, str)
WORD = "a non-empty string", lambda value: isinstance(value, str) and value.strip() != ""
VERDICT = "pass, degraded or fail", lambda value: value in ("pass", "degraded", "fail")
FLAG = "true or false", lambda value: isinstance(value, bool)
ANYTHING = "anything", lambda value: True
PLAIN = "one value", lambda value: value is None or isinstance(value, (str, bool)) or _is_number(value)

# A key that ends with ? may be missing.
_SLOW_RANKS = {"compared": COUNT, "explained_share": SPAN, "is_cause": FLAG,
               "ranks": [{"rank": COUNT, "host": TEXT, "device": TEXT, "own": SPAN, "median": SPAN, "score?": SPAN}]}
TRAINING = {
    "environment": Map(ANYTHING),
    "config": {**{key: WORD for key in ("technique", "transport", "dtype", "clock")}, "ranks": COUNT, "threads": COUNT,
               **{key: PLAIN for key in ("recompute?", "schedule?", "schedule_file?", "mode?", "servers?", "staleness?",
                                         "colocated?")}},
    "unigram_entropy": NUMBER,
    "steps": [{"step": COUNT, "loss": NUMBER, "seconds": SPAN, "tokens_per_second": SPAN, "aux_loss?": NUMBER, "router_entropy?": NUMBER,
               "tokens_of_experts?": [[COUNT]]}],
    "validation": [{"step": COUNT, "loss": NUMBER}],
    "ranks": [{"rank": COUNT, "peak_bytes": Map(COUNT), "host?": TEXT, "device?": TEXT, "expert_rows?": COUNT,
               "own?": {"steps": COUNT, "seconds": SPAN, "waited": SPAN, "first_step": SPAN, "error?": SPAN},
               "waited_for?": [{"rank": COUNT, "seconds": SPAN}]}],
    "slow_ranks?": _SLOW_RANKS,
    "theory": [{"quantity": WORD, "rank": COUNT, "formula": TEXT, "expected": NUMBER, "measured": NUMBER, "exact": FLAG}],
    "layouts?": [{"layout": WORD, "pairs": [COUNT], "imbalance": SPAN}],
    "bubble?": Map(NUMBER),
    "updates?": [{"server": COUNT, "rank": COUNT, "seconds": SPAN, "lead": NUMBER, "delay": NUMBER}],
}
_MOE_SETTING = {"method": WORD, "skew": WORD, "link": TEXT, **{key: COUNT for key in ("ranks", "per_token", "tokens")}}
BENCHMARK = {
    "context": {"lockstep.environment": TEXT, "lockstep.clock?": WORD, "lockstep.link?": TEXT, "lockstep.layer?": TEXT,
                "lockstep.roofline?": TEXT, "lockstep.model?": TEXT},
    "crossovers?": [{"strategy": WORD, "reference": WORD, "ranks": COUNT, "bytes_per_s": SPAN, "is_faster_above": FLAG}],
    "context_limits?": [{**{key: COUNT for key in ("ranks", "heads", "kv_heads", "length")}, "link": TEXT,
                         **{key: SPAN for key in ("measured", "expected", "limit", "of_step")}}],
    "context_crossovers?": [{"quantity": WORD, "over": WORD, "at": SPAN, "ulysses_is_less_above": FLAG, "link": TEXT,
                             **{key: COUNT for key in ("ranks", "heads", "kv_heads", "length")}}],
    "memory_limit_bytes?": COUNT,
    "fastest?": {key: COUNT for key in ("tp", "cp", "pp", "dp")},
    **{key: [{**{axis: COUNT for axis in ("tp", "cp", "pp", "dp")}, "reason": TEXT}] for key in ("refused?", "not_chosen?")},
    "context_masks?": [{"layout": WORD, "ranks": COUNT, "owners": [COUNT], "pairs": [COUNT]}],
    "moe_crossovers?": [{**_MOE_SETTING, "over": WORD, "at": SPAN, "is_faster_above": FLAG, "expected?": SPAN}],
    "moe_prices?": [{**_MOE_SETTING, "times": SPAN}],
    "moe_pairs?": [{"skew": WORD, "link": TEXT, **{key: COUNT for key in ("ranks", "per_token", "tokens")}, "bytes_per_second": SPAN,
                    **{step: {"seconds": SPAN, "tokens_per_second": SPAN, "exposed_seconds": SPAN, "peak_bytes": COUNT}
                       for step in ("one_by_one", "in_turns")}}],
    "benchmarks": [{"name": WORD, "run_type": WORD}],
    "ranks?": [{"rank": COUNT, "host": TEXT, "device": TEXT}],
    "links?": [{**{key: COUNT for key in ("from", "to", "class", "classes")}, "in_host": FLAG,
                **{key: SPAN for key in ("latency_us", "gb_per_s", "back_gb_per_s", "both_ways_gb_per_s")}}],
    "slow_links?": [{"part": WORD, "from": COUNT, "to": COUNT, "hosts": [TEXT], "in_host": FLAG, "ratio": SPAN, "ratios": Map(SPAN), "text": TEXT,
                     "slow_links?": COUNT, "links?": COUNT}],
    "verdict?": VERDICT, "passes?": COUNT, "steps_compared?": COUNT,
    "hosts?": [{"host": TEXT, "verdict": VERDICT, "processor": TEXT, "cores": COUNT, "gpus": COUNT, "ranks": [{"rank": COUNT}]}],
    "findings?": [{"code": COUNT, "verdict": VERDICT, "hosts": [TEXT], "text": TEXT, "next": TEXT}],
    "rank_times?": [{"name": WORD, **{key: [SPAN_OR_NULL] for key in ("late_us", "duration_us", "own_us?", "waited_us?")},
                     "waited_for_us?": [[SPAN]], "equal_work?": FLAG}],
    "slow_ranks?": _SLOW_RANKS,
}
_COUNTERS = {
    **{f"{key}?": SPAN for key in ("min_us", "p50_us", "p90_us", "algbw_gb_per_s", "busbw_gb_per_s", "model_us")},
    **{f"{key}?": NUMBER for key in ("wrong", "simulated_fraction", "expected_fraction", "bubble_fraction", "tokens_per_second",
                                     "in_place")},
    **{f"{key}?": COUNT for key in ("bytes", "ranks", "micro_batches", "chunks")},
    "paper_bytes?": SPAN,
}
MEASUREMENT = {**_COUNTERS, "in_flight?": [COUNT], "peak_activation_bytes?": [COUNT], "strategy?": WORD,
               **{f"{key}?": Map(COUNT) for key in ("sent_bytes", "expected_sent_bytes", "peak_bytes", "kept_bytes")},
               **{f"{key}?": SPAN for key in ("step_seconds", "link_bytes_per_s", "whole_blocks", "exposed_seconds", "scores_bytes",
                                              "output_error", "gradient_error")},
               **{f"{key}?": SPAN for key in ("counts_seconds", "dispatch_seconds", "combine_seconds", "expected_dispatch_seconds",
                                              "latency_seconds", "dropped_share")},
               **{f"{key}?": COUNT for key in ("per_token", "tokens", "dispatch_bytes", "mean_dispatch_bytes", "dispatch_messages")},
               "skew?": WORD, "method?": WORD, "link?": TEXT, "accumulation?": WORD, "expected_peak_bytes?": Map(COUNT),
               **{f"{key}?": COUNT for key in ("tp", "cp", "pp", "dp", "busiest_rank", "kinds_of_ranks")},
               "bubble_seconds?": SPAN, "exposed_by_axis?": Map(SPAN),
               **{f"{key}?": SPAN for key in ("gflop_per_s", "gb_per_s")},
               **{f"{key}?": [COUNT] for key in ("pairs", "expected_pairs")},
               **{f"{key}?": COUNT for key in ("heads", "kv_heads", "length", "exchanged_bytes", "expected_exchanged_bytes")}}
# Google Benchmark's cv over repetitions: the standard deviation divided by the average. Of counters that are 0, it is null.
VARIATION = {key: (f"{words} or null", lambda value, fits=fits: value is None or fits(value))
             for key, (words, fits) in _COUNTERS.items()}
SCHEDULE = {
    "name": WORD,
    "config": {"ranks": COUNT, "stages": COUNT, "micro_batches": COUNT},
    "makespan": SPAN,
    "bubble": {"fraction": NUMBER, "overhead": NUMBER},
    "ranks": [{"in_flight": COUNT, "unfinished": COUNT,
               "actions": [{"pass": WORD, "stage": COUNT, "micro_batch?": NUMBER, "begin": SPAN, "end": SPAN, "with_next": FLAG}]}],
}
# The parts of a step, from the products at the peak on, and what is in memory.
SEARCH_PARTS = ("products_at_peak", "sustained_rate", "tiles_and_launches", "memory_bound", "issue", "tp", "cp", "ep", "bubble", "imbalance", "pp",
                "dp", "tied_embedding", "optimizer", "step_overhead")
SEARCH_MEMORY = ("parameters", "gradients", "optimizer", "activations", "communication", "workspace")
_HELD = {"first": COUNT, "count": COUNT, "reduces": FLAG, "from?": COUNT, "times": [[COUNT]]}
CONTRIBUTIONS = {
    "operation": WORD,
    "algorithm": WORD,
    "config": {"ranks": COUNT, "elements": COUNT},
    "ranks": [{"held": [_HELD]}],
    "wrong": [{key: COUNT for key in ("rank", "element", "source", "times", "wanted")}],
}
HISTORY = {
    "effect": SPAN,
    "nights": [{"time": WORD, "label": WORD, "file": TEXT, "host": TEXT, "changed": [TEXT]}],
    "wrong": [TEXT],
    "rows": [{"name": WORD, "level_us": SPAN, "slower": FLAG, "base_us?": SPAN, "drift?": NUMBER,
              "points": [{"night": COUNT, "us": SPAN, "outlier": FLAG}],
              "changes": [{"night": COUNT, "previous": COUNT, "before_us": SPAN, "after_us": SPAN, "change": NUMBER, "chance": SPAN, "chosen": TEXT,
                           "accepted": FLAG, "open": FLAG}]}],
}
SEARCH = {
    "model": Map(PLAIN), "cluster": WORD, "profile": WORD, "gpus": COUNT, "memory_limit": SPAN, "considered": COUNT, "closed_form_error": SPAN,
    "rejected": [{"reason": TEXT, "plans": COUNT}],
    "plans": [{"name": WORD, **{key: SPAN for key in ("seconds", "tflops_per_gpu", "model_tflops_per_gpu", "tokens_per_second",
                                                      "closed_form_seconds")},
               "interval": [SPAN], "parts": Map(NUMBER), "waterfall": {f"{key}?": NUMBER for key in SEARCH_PARTS}, "verdict": WORD, "fits": FLAG,
               "plan": {"tp": COUNT, "pp": COUNT}, "memory": [{"stage": COUNT, "total": SPAN, **{key: SPAN for key in SEARCH_MEMORY}}]}],
    "by_tp_pp": [{"tp": COUNT, "pp": COUNT, "name": WORD, "seconds": SPAN, "memory": SPAN, "fits": FLAG}],
    **{key: [{"change": WORD, "verdict": TEXT, "seconds?": SPAN}] for key in ("why_not", "neighbours")},
    "what_if": [{"change": WORD, "seconds": SPAN, "saved": NUMBER}],
    "advice": [TEXT],
}
_PLACE = {"pid": COUNT, "ts": NUMBER}
EVENTS = {
    "X": {**_PLACE, "tid": COUNT, "dur": SPAN, "name": WORD, "cat?": TEXT, "args?": {"bytes?": COUNT}},
    "s": {**_PLACE, "id": WORD, "args?": {"bytes?": COUNT}},
    "f": {**_PLACE, "id": WORD},
    "M": {"pid": COUNT, "name": WORD, "args": {"name?": TEXT}},
}


def check(value, form, place=""):
    """Raises WrongForm unless the value has the form."""
    if isinstance(form, (dict, Map)):
        _require(isinstance(value, dict), value, "an object", place)
        for key, inner in ({key: form.values for key in value} if isinstance(form, Map) else form).items():
            name = key if isinstance(form, Map) else key.removesuffix("?")
            if name in value:
                check(value[name], inner, f"{place}.{name}" if place else name)
            elif not key.endswith("?"):
                raise WrongForm(f"{place + ': ' if place else ''}no {name}")
    elif isinstance(form, list):
        _require(isinstance(value, list), value, "a list", place)
        for index, item in enumerate(value):
            check(item, form[0], f"{place}[{index}]")
    else:
        _require(form[1](value), value, form[0], place)


def check_benchmark(data):
    check(data, BENCHMARK)
    for index, entry in enumerate(data["benchmarks"]):
        is_variation = entry["run_type"] == "aggregate" and entry.get("aggregate_name") == "cv"
        check(entry, VARIATION if is_variation else MEASUREMENT, f"benchmarks[{index}]")


def check_trace(events):
    """Also that ranks have the numbers 0 to P - 1, as the processes of every trace do."""
    check(events, [{"ph": WORD}], "traceEvents")
    for index, event in enumerate(events):
        check(event, EVENTS.get(event["ph"], {}), f"traceEvents[{index}]")
    ranks = {event["pid"] for event in events if event["ph"] in EVENTS}
    if ranks and max(ranks) >= len(ranks):
        raise WrongForm(f"a rank {max(ranks)} among {len(ranks)} ranks")


def parse(text):
    """The JSON in a text. Raises ValueError, also for numbers that no run writes, deep values, and names that an object has twice."""
    def number(kind):
        def checked(digits):
            value = kind(digits)
            if abs(value) > MOST_NUMBER:
                raise ValueError(f"the number {_shortened(digits)} is out of range")
            return value
        return checked

    def refuse(word):
        raise ValueError(f"{word} is no number")

    def named(pairs):
        names = dict(pairs)
        if len(names) < len(pairs):
            seen = [name for name, _ in pairs]
            twice = next(name for name in seen if seen.count(name) > 1)
            raise ValueError(f"an object has the name {_shortened(json.dumps(twice))} twice")
        return names

    try:
        value = json.loads(text, parse_int=number(int), parse_float=number(float), parse_constant=refuse, object_pairs_hook=named)
    except RecursionError as error:
        raise ValueError("its values are nested too deeply") from error
    level = [value]
    for _ in range(MOST_DEPTH):
        level = [inner for outer in level for inner in _items(outer) if isinstance(inner, (dict, list))]
    if level:
        raise ValueError(f"its values are nested more than {MOST_DEPTH} deep")
    if HALF_A_CHARACTER.search(text):
        json.dumps(value, ensure_ascii=False).encode()  # raises ValueError if the other half is missing
    return value


def _items(value):
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def printable(text):
    """The text with control characters escaped, and bytes that are not UTF-8, which a name of a file may hold: a terminal would obey
    them, and no file could hold them."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def _shortened(text):
    return text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "..."


def _require(holds, value, wanted, place):
    if not holds:
        is_nan = value is None and wanted.startswith("a number")
        shown = "null, which stands for NaN or infinity" if is_nan else _shortened(json.dumps(value)[:LONGEST_SHOWN + 1])
        raise WrongForm(f"{place or 'the file'} is {shown}, not {wanted}")
