//! `zerofleet train --needs-libtorch`: reports whether a run needs libtorch. `cargo xtask train` fetches libtorch by
//! this report.

use fleet::Role;
use fleet::feasibility::{self, Obstacle, Programs};
use fleet::run_directory::Inference;
use run_file::RunFile;
use run_file::learner::libtorch::{Cpu, Reason, why};
use serde::Serialize;
use service::ConfigError;

/// Whether and why a run needs libtorch, printed as one line of JSON.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Answer {
    need: Need,
    /// Human-readable reason why the run needs libtorch, or why not.
    reason: String,
    /// True if the programs that evaluate positions, not only the learner, need libtorch.
    evaluating: bool,
}

/// How much a run needs libtorch.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Need {
    /// The learner cannot train, or the actors cannot play, without libtorch.
    Required,
    /// The learner trains faster with libtorch.
    Faster,
    /// The learner does not train faster with libtorch.
    None,
}

impl Answer {
    /// Returns whether a run with this number of learners needs libtorch on this CPU. The number is 0 if a program of
    /// the user trains.
    ///
    /// # Errors
    /// A key of the run file is invalid; the error names the key.
    pub(crate) fn new(config: &RunFile, inference: Inference, learners: usize, cpu: Cpu) -> Result<Self, ConfigError> {
        let programs = Programs { with_libtorch: Vec::new(), cpu };
        let found = feasibility::obstacles(config, inference, &programs)?;
        let engine = |obstacle: &Obstacle| matches!(obstacle, Obstacle::Engine(role, _) if *role != Role::Learner);
        if let Some(obstacle) = found.iter().find(|obstacle| engine(obstacle)) {
            return Ok(Self { need: Need::Required, reason: obstacle.to_string(), evaluating: true });
        }
        let reason = match learners {
            0 => None,
            1 => why(&config.learner_settings()?, cpu),
            _ => Some(Reason::group("--learners")),
        };
        let (need, reason) = match reason {
            Some(reason @ Reason::Required { .. }) => (Need::Required, reason.to_string()),
            Some(reason @ Reason::Faster(_)) => (Need::Faster, reason.to_string()),
            None if learners == 0 => (Need::None, "a program of the user computes the training steps".to_owned()),
            None => (Need::None, format!("the CPU kernels ({}) compute the training steps", cpu.path)),
        };
        Ok(Self { need, reason, evaluating: false })
    }
}

#[cfg(test)]
mod tests {
    use run_file::learner::libtorch::Path;

    use super::*;

    #[test]
    fn the_answer_names_the_need_and_the_reason() {
        let answer = |set: &dyn Fn(&mut RunFile), path| {
            let mut config = RunFile::default();
            set(&mut config);
            let cpu = Cpu { path, has_bf16: false };
            let answer = Answer::new(&config, Inference::Local, 1, cpu).unwrap();
            serde_json::to_string(&answer).unwrap()
        };
        let none =
            r#"{"need":"none","reason":"the CPU kernels (avx2-f32) compute the training steps","evaluating":false}"#;
        assert_eq!(answer(&|_| {}, Path::Avx2), none);
        let portable = answer(&|_| {}, Path::Portable);
        assert!(portable.starts_with(r#"{"need":"faster","reason":"the CPU has neither AVX2"#), "{portable}");
        let cuda = answer(&|config| config.learner.device = inference::DevicePreference::Cuda(0), Path::Avx2);
        assert_eq!(cuda, r#"{"need":"required","reason":"learner.device: `cuda` is not a CPU","evaluating":false}"#);
        let actors = answer(&|config| config.network.channels = 24, Path::Avx2);
        assert!(actors.contains(r#""need":"required""#) && actors.contains(r#""evaluating":true"#), "{actors}");
        let cpu = Cpu { path: Path::Avx2, has_bf16: false };
        let together = Answer::new(&RunFile::default(), Inference::Local, 2, cpu).unwrap();
        assert!(together.need == Need::Required && together.reason.starts_with("--learners: "), "{together:?}");
        let mut config = RunFile::default();
        config.learner.device = inference::DevicePreference::Cuda(0);
        let own = Answer::new(&config, Inference::Local, 0, cpu).unwrap();
        assert_eq!((own.need, own.reason.as_str()), (Need::None, "a program of the user computes the training steps"));
    }
}
