use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use game::ObservationShape;
use inference::{Batch, PrecisionPreference};
use serde::{Deserialize, Serialize};
use weights::{Architecture, Digest, Manifest};

use crate::choose::{ChosenVariant, choose_variant, fastest_first};
use crate::folded::Folded;
use crate::integers::{self, Integers};
use crate::recent::Recent;
use crate::{Drift, Error, KernelVariant, Tower, TowerEvaluator};

/// The engine a user wants on a CPU: `auto`, `libtorch`, or a variant of this kernel by name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum KernelPreference {
    /// The fastest engine that takes the network.
    #[default]
    Auto,
    /// libtorch.
    Libtorch,
    /// This variant of the kernel and no other.
    Only(KernelVariant),
}

inference::configured_as_text!(KernelPreference);

impl KernelPreference {
    /// Builds the kernel for this preference, `None` for libtorch; `now` is the clock that variants are compared by.
    #[must_use]
    pub fn kernel(self, precision: PrecisionPreference, now: &mut dyn FnMut() -> Instant) -> Option<Kernel> {
        match self {
            Self::Auto => {
                let mut paths = fastest_first(now);
                paths.retain(|path| precision != PrecisionPreference::F32 || !path.is_bf16());
                Some(Kernel::new(paths, precision))
            }
            Self::Libtorch => None,
            Self::Only(path) => Some(Kernel::new(vec![path], precision)),
        }
    }
}

impl std::fmt::Display for KernelPreference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Libtorch => f.write_str("libtorch"),
            Self::Only(path) => path.fmt(f),
        }
    }
}

impl std::str::FromStr for KernelPreference {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "libtorch" => Ok(Self::Libtorch),
            // Integers are a precision: they need a floating-point variant beside them.
            _ => KernelVariant::ALL.into_iter().find(|path| path.name() == text).map(Self::Only).ok_or_else(|| {
                let paths = KernelVariant::ALL.map(KernelVariant::name).join(", ");
                format!("`{text}` is not a CPU kernel: expected auto, libtorch, {paths}")
            }),
        }
    }
}

/// Hands evaluators to the threads of a process: the path is chosen once, each weights version is packed once.
///
/// If integers are allowed, each version is calibrated and checked on positions that its evaluators received lately,
/// and answered in floating point until there are some, or if the check fails. An [`adaptive`](Self::adaptive) kernel
/// checks bfloat16 likewise, against float32.
#[derive(Debug)]
pub struct Kernel {
    /// The floating-point paths to try, in their order.
    paths: Vec<KernelVariant>,
    /// The path of integers to try.
    int8: Option<KernelVariant>,
    /// The positions to check coarse numbers on.
    recent: Option<Arc<Recent>>,
    packed: Mutex<Packed>,
}

#[derive(Debug, Default)]
struct Packed {
    /// The last choice of a floating-point path and the network it was made for.
    choice: Option<(Architecture, ChosenVariant)>,
    /// The last version, and what it is computed with.
    version: Option<(Digest, Arc<Tower>)>,
    used: Option<ChosenVariant>,
}

impl Kernel {
    /// A kernel that uses the first of `paths` that works, and integers if one of them multiplies integers or
    /// `precision` is as coarse. Integers alone have every floating-point path beside them.
    #[must_use]
    pub fn new(mut paths: Vec<KernelVariant>, precision: PrecisionPreference) -> Self {
        let named = paths.iter().copied().find(|path| path.is_int8());
        let int8 = named.or_else(|| integers::widest().filter(|_| precision == PrecisionPreference::Int8));
        paths.retain(|path| !path.is_int8());
        if paths.is_empty() {
            paths.extend(KernelVariant::ALL);
        }
        Self { paths, int8, recent: int8.map(|_| Arc::default()), packed: Mutex::default() }
    }

    /// The same kernel, which holds bfloat16 against float32 on recent positions with every new version, and answers a
    /// version that drifts in float32. For callers that evaluate what a run evaluates: the answers of a version depend
    /// on earlier positions.
    #[must_use]
    pub fn adaptive(mut self) -> Self {
        self.recent.get_or_insert_default();
        self
    }

    /// An evaluator of a published version for one thread.
    ///
    /// # Errors
    /// As [`choose_variant`] and [`Tower::new`]: [`Error::Unsupported`] means that another evaluator is needed, and so
    /// does [`Error::Unavailable`].
    pub fn evaluator(&self, manifest: &Manifest, bytes: &[u8]) -> Result<TowerEvaluator, Error> {
        // What a thread that panicked left behind is whole: each part is assigned at once.
        let mut packed = self.packed.lock().unwrap_or_else(PoisonError::into_inner);
        let tower = match &packed.version {
            Some((digest, tower)) if *digest == manifest.digest => Arc::clone(tower),
            _ => {
                let (tower, used) = self.pack(&mut packed.choice, &manifest.architecture, bytes)?;
                packed.version = Some((manifest.digest, Arc::clone(&tower)));
                packed.used = Some(used);
                tower
            }
        };
        let evaluator = TowerEvaluator::new(tower, manifest.version);
        let is_coarse = packed.choice.as_ref().is_some_and(|(_, chosen)| chosen.path.is_bf16()) || self.int8.is_some();
        Ok(match &self.recent {
            Some(recent) if is_coarse => evaluator.showing(Arc::clone(recent)),
            _ => evaluator,
        })
    }

    /// The path of the last version, and the reason for it; `None` before the first.
    #[must_use]
    pub fn chosen(&self) -> Option<ChosenVariant> {
        self.packed.lock().unwrap_or_else(PoisonError::into_inner).used.clone()
    }

    fn pack(
        &self,
        choice: &mut Option<(Architecture, ChosenVariant)>,
        architecture: &Architecture,
        bytes: &[u8],
    ) -> Result<(Arc<Tower>, ChosenVariant), Error> {
        let chosen = self.float_path(choice, architecture)?;
        Error::check(architecture)?;
        let folded = Folded::from_safetensors(architecture, bytes)?;
        let float = Arc::new(Tower::from_folded(&folded, chosen.path, None)?);
        let &Architecture { planes, height, width, .. } = architecture;
        let sample = self.recent.as_ref().and_then(|recent| recent.sample(ObservationShape { planes, height, width }));
        let (float, chosen) = match &sample {
            Some(sample) if chosen.path.is_bf16() => self.checked(&folded, float, chosen, sample)?,
            _ => (float, chosen),
        };
        let Some(path) = self.int8 else { return Ok((float, chosen)) };
        let Some(sample) = sample else {
            let reason = format!("until {path} has positions to be calibrated on");
            return Ok((float, ChosenVariant { reason, ..chosen }));
        };
        match integers::quantise(&folded, path, &float, &sample)? {
            Integers::Near(tower) => {
                let reason = format!("calibrated on recent positions, checked against {}", float.path());
                Ok((tower, ChosenVariant { path, reason }))
            }
            Integers::Far(drift) => {
                let reason = format!("{path} drifts from it: {drift}");
                Ok((float, ChosenVariant { reason, ..chosen }))
            }
        }
    }

    /// A version in bfloat16 if it answers as float32 does, else in float32. Where only bfloat16 is allowed it stays.
    fn checked(
        &self,
        folded: &Folded,
        coarse: Arc<Tower>,
        chosen: ChosenVariant,
        sample: &Batch,
    ) -> Result<(Arc<Tower>, ChosenVariant), Error> {
        let float32 = self.paths.iter().copied().find(|path| !path.is_bf16() && path.is_available());
        let Some(path) = float32 else { return Ok((coarse, chosen)) };
        let fine = Arc::new(Tower::from_folded(folded, path, None)?);
        let drift = Drift::on(sample, &fine, &coarse);
        if drift.is_small() {
            return Ok((coarse, chosen));
        }
        let reason = format!("{} drifts from it: {drift}", chosen.path);
        Ok((fine, ChosenVariant { path, reason }))
    }

    fn float_path(
        &self,
        choice: &mut Option<(Architecture, ChosenVariant)>,
        architecture: &Architecture,
    ) -> Result<ChosenVariant, Error> {
        if let Some((known, chosen)) = choice
            && known == architecture
        {
            return Ok(chosen.clone());
        }
        let chosen = choose_variant(architecture, &self.paths)?;
        *choice = Some((architecture.clone(), chosen.clone()));
        Ok(chosen)
    }
}
