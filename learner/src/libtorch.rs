//! The decision whether libtorch computes training steps, or the kernels of the CPU, which need no libtorch.
//!
//! [`why`] decides for the settings of a run, [`why_on_cpu`] for a network and its training settings on a CPU. The
//! program `learner` chooses its backend by them, and `cargo xtask train` whether it fetches libtorch, so that a
//! network that [`Trainer::check`] accepts needs none anywhere.

use inference::PrecisionPreference;
use training::{Precision, TrainerSettings, TrainingKernel};
use training_cpu::Trainer;
use weights::Architecture;

pub use training_cpu::Path;

use crate::config::Settings;
use crate::trainer_settings;

/// The features of a CPU that decide between the backends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpu {
    /// The widest instructions for the kernels.
    pub path: Path,
    /// Matrix tiles (AMX), which only the kernels beside libtorch use.
    pub has_matrix_tiles: bool,
}

/// The reason why libtorch trains.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The kernels of the CPU cannot train with the value of this key of the run file.
    #[error("{key}: {why}")]
    Required {
        /// The key.
        key: &'static str,
        /// What the value asks for.
        why: String,
    },
    /// The kernels of the CPU can train, and libtorch is faster.
    #[error("{0}")]
    Faster(&'static str),
}

/// Returns the reason why libtorch trains a run on a machine without accelerators; `None` if the kernels of the CPU do.
#[must_use]
pub fn why(settings: &Settings, cpu: Cpu) -> Option<Reason> {
    let section = &settings.learner;
    if section.device.is_accelerator() {
        return Some(Reason::Required { key: "learner.device", why: format!("`{}` is no CPU", section.device) });
    }
    let architecture = games::with_game!(settings.game, |game| settings.network.architecture_of(&game));
    let precision = match section.precision {
        PrecisionPreference::Bf16 => Precision::Bf16,
        PrecisionPreference::Auto | PrecisionPreference::F32 | PrecisionPreference::Int8 => Precision::F32,
    };
    let trainer = TrainerSettings { precision, ..trainer_settings(section) };
    let uses_tiles = cpu.has_matrix_tiles && section.precision != PrecisionPreference::F32;
    why_on_cpu(&architecture, &trainer, cpu.path).or_else(|| {
        uses_tiles.then_some(Reason::Faster(
            "the CPU has matrix tiles (AMX), with which libtorch trains in bf16, several times as fast as in f32",
        ))
    })
}

/// Returns the reason why libtorch trains on a CPU of which `path` is the widest; `None` if the kernels of the CPU do.
#[must_use]
pub fn why_on_cpu(architecture: &Architecture, settings: &TrainerSettings, path: Path) -> Option<Reason> {
    if settings.tower == TrainingKernel::Libtorch {
        return Some(Reason::Required { key: "learner.kernel", why: "`libtorch` is configured".to_owned() });
    }
    if let Err(error) = Trainer::check(architecture, settings) {
        let in_f32 = TrainerSettings { precision: Precision::F32, ..settings.clone() };
        let key = if Trainer::check(architecture, &in_f32).is_ok() { "learner.precision" } else { "network.model" };
        return Some(Reason::Required { key, why: error.to_string() });
    }
    (path == Path::Portable).then_some(Reason::Faster("the CPU has neither AVX2 with FMA nor AVX-512"))
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    use super::*;

    const PLAIN: Cpu = Cpu { path: Path::Avx2, has_matrix_tiles: false };
    const TILES: Cpu = Cpu { path: Path::Avx512, has_matrix_tiles: true };
    const PORTABLE: Cpu = Cpu { path: Path::Portable, has_matrix_tiles: false };

    /// The reason for a run with these keys; empty without one.
    fn reason(sets: &[&str], cpu: Cpu) -> String {
        let sets = sets.iter().map(|&set| set.to_owned()).collect();
        let sources = service::config::Sources { file: None, env: std::iter::empty(), sets };
        let config: Config = sources.read(games::preset).unwrap().load().unwrap();
        why(&config.settings().unwrap(), cpu).map_or_else(String::new, |reason| reason.to_string())
    }

    #[test]
    fn a_run_on_a_cpu_needs_libtorch_only_for_what_the_kernels_lack_or_compute_slower() {
        let muzero = "run.game=cartpole-v1";
        for (sets, cpu, expected) in [
            (&[][..], PLAIN, ""),
            (&["learner.device=cpu", "network.squeeze_excitation=16"], PLAIN, ""),
            (&["learner.precision=f32"], TILES, ""),
            (&["learner.precision=f32"], PORTABLE, "neither AVX2 with FMA nor AVX-512"),
            (&[], TILES, "matrix tiles"),
            (&["learner.precision=bf16"], PLAIN, "learner.precision: the kernels of the CPU do not train in this"),
            (&["learner.device=cuda:1"], PLAIN, "learner.device: `cuda:1` is no CPU"),
            (&["learner.device=mps"], PLAIN, "learner.device: `mps` is no CPU"),
            (&["learner.kernel=libtorch"], PLAIN, "learner.kernel: `libtorch` is configured"),
            (&["network.model=muzero"], PLAIN, "network.model: the kernels of the CPU do not train networks of this"),
            (&[muzero], TILES, "network.model: the kernels of the CPU do not train networks of this"),
            (&["run.game=catch", "network.model=alphazero"], PLAIN, "network.model: the kernels of the CPU do not"),
        ] {
            let got = reason(sets, cpu);
            assert_eq!(got.is_empty(), expected.is_empty(), "{sets:?}: {got}");
            assert!(got.contains(expected), "{sets:?}: `{got}` does not contain `{expected}`");
        }
    }
}
