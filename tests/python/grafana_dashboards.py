"""Holds dashboards against the types that Grafana publishes: python grafana_dashboards.py DASHBOARD.json...

The Foundation SDK is generated from Grafana's schema: dashboards, panels with the options and fields of each kind, and
queries of Prometheus. Its decoder takes what it is given, so three things are asked here: that every field is known (nothing
is lost between decoding and encoding), that every field is of its type, and that required ones are there.
"""

import enum
import json
import sys
import typing

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard


def unknown(given, encoded, place):
    """What was given and is not what came back."""
    if isinstance(given, dict) and isinstance(encoded, dict):
        for key, value in given.items():
            here = f"{place}.{key}"
            if key in encoded:
                yield from unknown(value, encoded[key], here)
            else:
                yield f"{here}: no such field"
    elif isinstance(given, list) and isinstance(encoded, list) and len(given) == len(encoded):
        for index, pair in enumerate(zip(given, encoded)):
            yield from unknown(*pair, f"{place}[{index}]")
    elif given != encoded:
        yield f"{place}: {given!r} came back as {encoded!r}"


def is_model(value):
    return type(value).__module__.startswith("grafana_foundation_sdk.") and not isinstance(value, enum.Enum)


def wrong(value, wanted, place):
    """Values that are not of the type that the schema gives them."""
    if wanted in (typing.Any, object) or isinstance(wanted, (typing.TypeVar, typing.ForwardRef)):
        if is_model(value):
            yield from wrong_fields(value, place)
        return
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin is typing.Union:
        complaints = [list(wrong(value, one, place)) for one in arguments]
        if all(complaints):
            yield min(complaints, key=lambda some: -len(some[0]))[0]
    elif origin is typing.Literal:
        if value not in arguments:
            yield f"{place}: {value!r} is none of {arguments}"
    elif origin in (list, dict):
        if not isinstance(value, origin):
            yield f"{place}: {value!r} is no {origin.__name__}"
        else:
            entries = value.items() if origin is dict else enumerate(value)
            for key, entry in entries:
                yield from wrong(entry, arguments[-1], f"{place}[{key!r}]")
    elif isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        if value not in [one.value for one in wanted]:
            yield f"{place}: {value!r} is none of {[one.value for one in wanted]}"
    elif wanted is float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            yield f"{place}: {value!r} is no number"
    elif isinstance(wanted, type):
        # In Python a bool is an int, but not in JSON.
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
            yield f"{place}: {value!r} is no {wanted.__name__}"
        elif is_model(value):
            yield from wrong_fields(value, place)


def wrong_fields(model, place):
    for name, wanted in typing.get_type_hints(type(model)).items():
        yield from wrong(getattr(model, name, None), wanted, f"{place}.{name}")


def missing(given, model, place):
    """Required fields that were left to a default, of dashboard and panels."""
    for field in ("schemaVersion", "templating", "annotations"):
        if field not in given:
            yield f"{place}.{field}: is required"
    for index, panel in enumerate(given["panels"]):
        wanted = ("type", "id", "collapsed", "panels") if panel["type"] == "row" else ("type",)
        for field in wanted:
            if field not in panel:
                yield f"{place}.panels[{index}].{field}: is required"


def complaints(given, name):
    model = Dashboard.from_json(given)
    encoded = json.loads(json.dumps(model, cls=JSONEncoder))
    yield from unknown(given, encoded, name)
    yield from wrong_fields(model, name)
    yield from missing(given, model, name)


def must_complain(given, what):
    """A check that finds nothing anywhere would pass as well."""
    assert list(complaints(given, "broken")), f"a dashboard with {what} was let through"


def check_the_check(given):
    def broken(change):
        copy = json.loads(json.dumps(given))
        change(copy, next(panel for panel in copy["panels"] if panel["type"] == "timeseries"))
        return copy

    must_complain(broken(lambda _, panel: panel["options"].update(legnd={})), "an unknown option")
    must_complain(broken(lambda _, panel: panel["options"]["legend"].update(displayMode="lst")), "an unknown mode")
    must_complain(broken(lambda _, panel: panel["fieldConfig"]["defaults"]["custom"].update(lineWidth="1")), "a wrong type")
    must_complain(broken(lambda _, panel: panel["targets"][0].update(exprs="up")), "an unknown field of a query")
    must_complain(broken(lambda _, panel: panel["gridPos"].update(x="0")), "a place that is no number")
    must_complain(broken(lambda dashboard, _: dashboard.update(titel="x")), "an unknown field")
    must_complain(broken(lambda dashboard, _: dashboard.pop("schemaVersion")), "no version")


def main():
    register_default_plugins()
    found = []
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            given = json.load(file)
        found += complaints(given, path)
        check_the_check(given)
    print("\n".join(found))
    print(f"{len(sys.argv) - 1} dashboards, {len(found)} complaints")
    sys.exit(bool(found))


main()
