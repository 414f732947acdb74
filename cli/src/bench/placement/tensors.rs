use super::report::{CPU, Placed};

/// What processes say they chose.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Devices {
    /// What the learner trains on.
    pub(super) learner: Option<String>,
    /// In which precision.
    pub(super) precision: Option<String>,
    /// What self-play evaluates with.
    pub(super) evaluator: Option<String>,
}

impl Devices {
    /// Where self-play evaluates: `libtorch on DEVICE (why), precision`, `libtorch DEVICE precision` where that was measured to
    /// be fastest at some batch, or the CPU kernel. Of several devices the last: it has the large batches.
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
    // The arena does not tell what it chose.
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
mod tests;
