//! Chooses the training backend: libtorch, or the CPU kernels, which do not need libtorch.
//!
//! [`why`] decides for the settings of a run, [`why_on_cpu`] for the settings of a trainer on a CPU. The program
//! `learner` uses the chosen backend, and `cargo xtask train` fetches libtorch only if needed.

use inference::TrainingPrecision;
use training::{Precision, TrainerSettings, TrainingKernel};

pub use training_cpu::Path;

use crate::learner::Settings;
use crate::learner::trainer_settings;

/// CPU features on which the choice of the training backend depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpu {
    /// The widest vector instructions available to the float32 kernels.
    pub path: Path,
    /// True if the CPU supports bfloat16 multiplication in the kernels.
    pub has_bf16: bool,
}

impl Cpu {
    /// Returns the features of this CPU.
    #[must_use]
    pub fn this() -> Self {
        Self { path: Path::widest(), has_bf16: Path::fastest(Precision::Bf16).is_some() }
    }

    /// Returns the kernel precision for `learner.precision = "auto"`: bfloat16 if the CPU supports it, otherwise
    /// float32.
    #[must_use]
    pub fn automatic_precision(self) -> Precision {
        if self.has_bf16 { Precision::Bf16 } else { Precision::F32 }
    }
}

/// The reason to train with libtorch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The CPU kernels do not support the value of a run file key.
    #[error("{key}: {why}")]
    Required {
        /// The run file key, such as `learner.kernel`.
        key: &'static str,
        /// The reason why the value requires libtorch.
        why: String,
    },
    /// The CPU kernels can train, but libtorch is faster.
    #[error("{0}")]
    Faster(&'static str),
}

impl Reason {
    /// Returns the reason why learners in a group need libtorch; `key` names the key that configures the group.
    #[must_use]
    pub fn group(key: &'static str) -> Self {
        Self::Required { key, why: "learners sum gradients with Gloo, a part of libtorch".to_owned() }
    }
}

/// Returns the reason to train a run with libtorch on a machine without accelerators; `None` if the CPU kernels train.
#[must_use]
pub fn why(settings: &Settings, cpu: Cpu) -> Option<Reason> {
    let section = &settings.learner;
    if !settings.group.is_empty() {
        return Some(Reason::group("learner.group"));
    }
    if section.device.is_accelerator() {
        return Some(Reason::Required { key: "learner.device", why: format!("`{}` is not a CPU", section.device) });
    }
    let precision = match section.precision {
        TrainingPrecision::Bf16 | TrainingPrecision::Adaptive => Precision::Bf16,
        TrainingPrecision::F16 => Precision::F16,
        TrainingPrecision::Auto => cpu.automatic_precision(),
        TrainingPrecision::F32 => Precision::F32,
    };
    why_on_cpu(&TrainerSettings { precision, ..trainer_settings(section) }, cpu)
}

/// Returns the reason to train with libtorch on a CPU; `None` if the CPU kernels train.
#[must_use]
pub fn why_on_cpu(settings: &TrainerSettings, cpu: Cpu) -> Option<Reason> {
    if settings.tower == TrainingKernel::Libtorch {
        return Some(Reason::Required { key: "learner.kernel", why: "`libtorch` is configured".to_owned() });
    }
    match settings.precision {
        Precision::F16 => {
            Some(Reason::Required { key: "learner.precision", why: "the CPU kernels do not support f16".to_owned() })
        }
        Precision::Bf16 if !cpu.has_bf16 => Some(Reason::Required {
            key: "learner.precision",
            why: "the CPU does not support bf16 (AVX-512 BF16)".to_owned(),
        }),
        Precision::F32 if cpu.path == Path::Portable => {
            Some(Reason::Faster("the CPU has neither AVX2 with FMA nor AVX-512"))
        }
        Precision::F32 | Precision::Bf16 => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::learner::Config;

    use super::*;

    const PLAIN: Cpu = Cpu { path: Path::Avx2, has_bf16: false };
    const WIDE: Cpu = Cpu { path: Path::Avx512, has_bf16: true };
    const PORTABLE: Cpu = Cpu { path: Path::Portable, ..PLAIN };

    /// Returns the reason to train a run with these keys with libtorch; empty if the CPU kernels train.
    fn reason(sets: &[&str], cpu: Cpu) -> String {
        let sets = sets.iter().map(|&set| set.to_owned()).collect();
        let sources = service::config::Sources { file: None, env: std::iter::empty(), sets };
        let config: Config = sources.read(games::preset).unwrap().load().unwrap();
        why(&config.settings().unwrap(), cpu).map_or_else(String::new, |reason| reason.to_string())
    }

    #[test]
    fn a_run_on_a_cpu_needs_libtorch_only_for_what_the_kernels_lack_or_compute_slower() {
        for (sets, cpu, expected) in [
            (&[][..], PLAIN, ""),
            (&["learner.device=cpu", "network.squeeze_excitation=16"], PLAIN, ""),
            (&["network.model=muzero"], PLAIN, ""),
            (&["run.game=cartpole-v1"], PLAIN, ""),
            (&["run.game=catch", "network.model=alphazero"], PLAIN, ""),
            (&["learner.precision=f32"], WIDE, ""),
            (&["learner.precision=f32"], PORTABLE, "neither AVX2 with FMA nor AVX-512"),
            (&[], WIDE, ""),
            (&["learner.precision=bf16"], WIDE, ""),
            (&["learner.precision=bf16"], PLAIN, "learner.precision: the CPU does not support bf16 (AVX-512 BF16)"),
            (&["learner.precision=adaptive"], WIDE, ""),
            (&["learner.precision=adaptive"], PLAIN, "learner.precision: the CPU does not support bf16 (AVX-512 BF16)"),
            (&["learner.precision=f16"], WIDE, "learner.precision: the CPU kernels do not support f16"),
            (&["learner.device=cuda:1"], PLAIN, "learner.device: `cuda:1` is not a CPU"),
            (&["learner.device=mps"], PLAIN, "learner.device: `mps` is not a CPU"),
            (
                &["learner.group=http://127.0.0.1:1,http://127.0.0.1:2"],
                PLAIN,
                "learner.group: learners sum gradients with Gloo",
            ),
            (&["learner.kernel=libtorch"], PLAIN, "learner.kernel: `libtorch` is configured"),
        ] {
            let got = reason(sets, cpu);
            assert_eq!(got.is_empty(), expected.is_empty(), "{sets:?}: {got}");
            assert!(got.contains(expected), "{sets:?}: `{got}` does not contain `{expected}`");
        }
    }
}
