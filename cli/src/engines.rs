//! Reads the engines of a run from the metrics of its processes: the training device, and the evaluators of each role.

use std::collections::{BTreeMap, BTreeSet};

use fleet::Role;
use fleet::exposition::Exposition;

/// Returns the engine of each role that reports one: `learner` with its device and precision, `actor`, `arena` and
/// `inference` with their evaluators. Processes of a role that differ are separated by `; `.
pub(crate) fn engines<'a>(processes: impl IntoIterator<Item = (Role, &'a Exposition)>) -> BTreeMap<String, String> {
    let mut found: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (role, exposition) in processes {
        if let Some((name, engine)) = engine(role, exposition) {
            found.entry(name).or_default().insert(engine);
        }
    }
    let joined = |engines: BTreeSet<String>| engines.into_iter().collect::<Vec<_>>().join("; ");
    found.into_iter().map(|(name, engines)| (name.to_owned(), joined(engines))).collect()
}

/// Formats engines as one line: `actor cpu avx512-f32, learner cuda bf16`.
pub(crate) fn line(engines: &BTreeMap<String, String>) -> String {
    engines.iter().map(|(role, engine)| format!("{role} {engine}")).collect::<Vec<_>>().join(", ")
}

fn engine(role: Role, exposition: &Exposition) -> Option<(&'static str, String)> {
    let newest = |metric: &str| {
        let all = exposition.series.iter().filter(|series| series.name == metric);
        all.max_by(|a, b| a.value.total_cmp(&b.value))
    };
    // The evaluator of the newest weights is the one in use.
    let evaluator = |name, metric| Some((name, newest(metric)?.label("evaluator")?.to_owned()));
    match role {
        Role::Actor => evaluator("actor", "zerofleet_actor_evaluator"),
        Role::Arena => evaluator("arena", "zerofleet_arena_evaluator"),
        Role::Inference => evaluator("inference", "zerofleet_inference_evaluator"),
        Role::Learner => {
            let device = newest("zerofleet_learner_device")?;
            Some(("learner", format!("{} {}", device.label("device")?, device.label("precision")?)))
        }
        Role::Replay => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_that_computes_has_the_engine_of_its_newest_weights() {
        let actor = |evaluator| Exposition::parse(&format!("zerofleet_actor_evaluator{{evaluator=\"{evaluator}\"}} 3"));
        let learner = Exposition::parse("zerofleet_learner_device{device=\"cuda\",precision=\"bf16\"} 1");
        let arena = "zerofleet_arena_evaluator{evaluator=\"cpu amx-bf16\"} 7\n\
                     zerofleet_arena_evaluator{evaluator=\"cpu avx512-f32\"} 9";
        let arena = Exposition::parse(arena);
        let (first, second, replay) = (actor("cpu avx2-f32"), actor("libtorch cuda bf16"), Exposition::default());
        let roles = [Role::Actor, Role::Actor, Role::Learner, Role::Arena, Role::Replay];
        let engines = engines(roles.into_iter().zip([&first, &second, &learner, &arena, &replay]));
        assert_eq!(line(&engines), "actor cpu avx2-f32; libtorch cuda bf16, arena cpu avx512-f32, learner cuda bf16");
    }
}
