/// The device of what no accelerator holds.
pub(super) const CPU: &str = "cpu";

/// A kind of data of a run, and its device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placed {
    /// The data.
    pub(super) what: String,
    /// The process that holds it.
    pub(super) process: String,
    /// As configuration writes it; unknown if the process did not report it.
    pub(super) device: Option<String>,
    /// The code that computes with it.
    pub(super) computed_by: Option<String>,
}

/// The choices that processes report.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Devices {
    /// The device of the learner.
    pub(super) learner: Option<String>,
    /// Its precision.
    pub(super) precision: Option<String>,
    /// The evaluator of self-play.
    pub(super) evaluator: Option<String>,
}

impl Devices {
    /// Returns the device of self-play: `libtorch on DEVICE (why), precision`, `libtorch DEVICE precision` if that was
    /// measured to be fastest at some batch, or the CPU kernel. Of several devices the last: it has the large batches.
    pub(super) fn of_evaluator(&self) -> Option<&str> {
        let evaluator = self.evaluator.as_deref()?;
        let measured = || evaluator.split(", ").filter_map(|part| part.strip_prefix("libtorch ")).last();
        let device = evaluator.strip_prefix("libtorch on ").or_else(measured);
        Some(device.and_then(|device| device.split_whitespace().next()).unwrap_or(CPU))
    }
}

/// Everything on the way of a position, in the order of that way.
pub(super) fn placed(devices: &Devices, arena: &str) -> Vec<Placed> {
    let placed = |what: &str, process: &str, device: Option<&str>, computed_by: Option<String>| Placed {
        what: what.to_owned(),
        process: process.to_owned(),
        device: device.map(str::to_owned),
        computed_by,
    };
    let (learner, evaluator) = (devices.learner.as_deref(), devices.of_evaluator());
    // The arena does not report its choice.
    let arena = Some(arena).filter(|device| *device != "auto");
    let torch = devices.precision.as_ref().map(|precision| format!("libtorch, {precision}"));
    let ours = |what: &str| Some(what.to_owned());
    vec![
        placed("positions, trees, position cache", "actor", Some(CPU), ours("search and rules")),
        placed("observations of a batch, priors and values", "actor", Some(CPU), ours("rules; the evaluator's ends")),
        placed("weights and activations of self-play", "actor", evaluator, devices.evaluator.clone()),
        placed("trajectories, items", "replay-server", Some(CPU), ours("replay table and log")),
        placed("samples, batches as they are made", "learner", Some(CPU), ours("rules, one thread")),
        placed("batches as they are trained on", "learner", learner, torch.clone()),
        placed("parameters, activations, gradients, moments, average", "learner", learner, torch),
        placed("published weights", "learner, actor, arena", Some(CPU), ours("nothing: bytes that are sent")),
        placed("weights and activations of rated games", "arena", arena, ours("as arena.device and arena.kernel say")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices(learner: &str, evaluator: &str) -> Devices {
        Devices {
            learner: Some(learner.to_owned()),
            precision: Some("bf16".to_owned()),
            evaluator: Some(evaluator.to_owned()),
        }
    }

    fn device(placed: &[Placed], what: &str) -> Option<String> {
        placed.iter().find(|placed| placed.what.starts_with(what)).unwrap().device.clone()
    }

    #[test]
    fn on_a_machine_without_accelerator_everything_is_on_the_cpu() {
        let placed = placed(&devices("cpu", "CPU kernel, avx512-bf16"), "cpu");
        assert!(placed.iter().all(|placed| placed.device.as_deref() == Some("cpu")), "{placed:?}");
        let evaluator = placed.iter().find(|placed| placed.what.starts_with("weights and activations of self-play"));
        assert_eq!(evaluator.unwrap().computed_by.as_deref(), Some("CPU kernel, avx512-bf16"));
    }

    #[test]
    fn an_accelerator_holds_what_is_computed_and_not_what_is_searched() {
        let devices = devices("cuda", "libtorch on cuda:1 (the first CUDA device works), bf16 (measured)");
        let placed = placed(&devices, "cpu");
        assert_eq!(device(&placed, "parameters").as_deref(), Some("cuda"));
        assert_eq!(device(&placed, "weights and activations of self-play").as_deref(), Some("cuda:1"));
        assert_eq!(device(&placed, "positions, trees").as_deref(), Some("cpu"));
    }

    #[test]
    fn an_evaluator_that_was_measured_tells_its_device_too() {
        let of = |evaluator: &str| devices("cuda", evaluator).of_evaluator().map(str::to_owned);
        assert_eq!(of("libtorch cuda:1 bf16, 2 in flight").as_deref(), Some("cuda:1"));
        let both = "cpu avx2-f32, libtorch mps f32 from batches of 16, 3 in flight";
        assert_eq!(of(both).as_deref(), Some("mps"));
        assert_eq!(of("cpu avx2-f32").as_deref(), Some("cpu"));
        let asked =
            "libtorch on cpu (using the CPU: libtorch finds no CUDA device, libtorch has no MPS), f32 (asked for)";
        assert_eq!(of(asked).as_deref(), Some("cpu"));
    }

    #[test]
    fn what_nobody_tells_is_not_known() {
        let placed = placed(&Devices::default(), "auto");
        assert_eq!(device(&placed, "parameters"), None);
        assert_eq!(device(&placed, "weights and activations of rated games"), None);
        assert_eq!(device(&placed, "weights and activations of self-play"), None);
    }
}
