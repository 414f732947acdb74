"""Reads the event files of a run with TensorBoard's own reader and checks what they hold.

Arguments: the folder of the run, and the number of sessions (event files) that it had.
"""

import pathlib
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto import event_pb2
from tensorboard.plugins.hparams import plugin_data_pb2


def events(folder):
    """The events of every file of a folder, in the order in which TensorBoard reads them."""
    for path in sorted(folder.glob("*tfevents*")):
        for record in RawEventFileLoader(str(path)).Load():
            yield event_pb2.Event.FromString(record)


def accumulated(folder):
    sizes = {"scalars": 0, "tensors": 0, "histograms": 0}
    accumulator = EventAccumulator(str(folder), size_guidance=sizes)
    accumulator.Reload()
    return accumulator


def histograms(folder):
    """The histograms as they were written: tag, step, HistogramProto."""
    for event in events(folder):
        for value in event.summary.value:
            if value.HasField("histo"):
                yield value.tag, event.step, value.histo


def settings(folder):
    """The settings of the sessions of a folder, as the hparams plugin decodes them."""
    for event in events(folder):
        for value in event.summary.value:
            if value.metadata.plugin_data.plugin_name == "hparams":
                data = plugin_data_pb2.HParamsPluginData.FromString(value.metadata.plugin_data.content)
                yield data.session_start_info


def check_steps(folder, sessions):
    files = sorted(folder.glob("*tfevents*"))
    assert len(files) == sessions, files
    accumulator = accumulated(folder)
    tags = sorted(tag for kind in ("scalars", "tensors") for tag in accumulator.Tags()[kind])
    print(f"{folder.name}: {len(tags)} tags: {' '.join(tags)}")
    for tag in tags:
        kind = accumulator.Scalars if tag in accumulator.Tags()["scalars"] else accumulator.Tensors
        steps = [event.step for event in kind(tag)]
        assert steps == sorted(steps), (folder, tag, steps)
    return accumulator


def main(run, sessions):
    whole = check_steps(run, sessions)
    scalars = whole.Tags()["scalars"]
    expected = ("loss/total", "learner/learning_rate", "learner/window_passes", "replay/samples_per_insert")
    for tag in (*expected, "actor/games_per_second"):
        assert tag in scalars, (tag, scalars)
    learner = check_steps(run / "learner", sessions)
    for tag in ("loss/total", "loss/policy", "loss/value", "learner/learning_rate", "learner/gradient_norm"):
        assert tag in learner.Tags()["scalars"], tag
    steps = [event.step for event in learner.Scalars("loss/total")]
    assert len(steps) == len(set(steps)), steps
    validation = check_steps(run / "validation", sessions)
    assert {"loss/policy", "loss/value", "validation/calibration_error"} <= set(validation.Tags()["scalars"])
    found = list(histograms(run / "learner"))
    print(f"{len(found)} histograms of {len({tag for tag, _, _ in found})} tensors")
    for kind in ("weights/", "gradients/"):
        assert any(tag.startswith(kind) for tag, _, _ in found), found
    for tag, step, histogram in found:
        assert sum(histogram.bucket) == histogram.num, (tag, step)
        assert list(histogram.bucket_limit) == sorted(histogram.bucket_limit), (tag, step)
        assert histogram.bucket_limit[-1] == histogram.max >= histogram.min, (tag, step)
    for folder in (run, run / "learner"):
        starts = list(settings(folder))
        assert len(starts) == sessions, starts
        for start in starts:
            assert start.group_name == run.name
            assert start.hparams["run.game"].string_value == "tic_tac_toe"
            assert start.hparams["learner.batch_size"].number_value > 0
            assert start.hparams["learner.event_files"].bool_value
            assert not any(key.startswith("security") for key in start.hparams)
    print(f"{len(starts[0].hparams)} settings of the learner")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
