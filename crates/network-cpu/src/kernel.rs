use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use game::ObservationShape;
use inference::{Batch, PrecisionPreference};
use serde::{Deserialize, Serialize};
use weights::{Architecture, BlockKind, Design, Digest, HeadKind, Manifest};

use crate::drift;
use crate::evaluator::Recent;
use crate::folded::Folded;
use crate::integer_trial::{IntegerTrial, SpeedUp};
use crate::tower::INTEGERS_TAKE;
use crate::{Drift, Error, KernelVariant, LatentEvaluator, LatentNetwork, Tower, TowerEvaluator, latent, reference};

/// Preferred engine on a CPU: `auto`, `libtorch`, or a variant of this kernel by name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum KernelPreference {
    /// Fastest engine that supports the network.
    #[default]
    Auto,
    /// The libtorch engine: no kernel is built.
    Libtorch,
    /// This variant of the kernel and no other.
    Only(KernelVariant),
}

inference::configured_as_text!(KernelPreference);

impl KernelPreference {
    /// Builds the kernel for this preference, `None` for libtorch; `now` is the clock to compare variants with.
    #[must_use]
    pub fn kernel(self, precision: PrecisionPreference, now: &mut dyn FnMut() -> Instant) -> Option<Kernel> {
        match self {
            Self::Auto => {
                let mut paths = fastest_first(now);
                // bfloat16 rounds more than float16, which the kernel lacks.
                let is_fine = matches!(precision, PrecisionPreference::F32 | PrecisionPreference::F16);
                paths.retain(|path| !is_fine || !path.is_bf16());
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
            // Integers are selected as a precision: they need a floating-point variant next to them.
            _ => KernelVariant::ALL.into_iter().find(|path| path.name() == text).map(Self::Only).ok_or_else(|| {
                let paths = KernelVariant::ALL.map(KernelVariant::name).join(", ");
                format!("`{text}` is not a CPU kernel: expected auto, libtorch, {paths}")
            }),
        }
    }
}

/// Minimum units of a dense network in bfloat16 if float32 is allowed too. Narrower networks gain a fifth at most
/// (`zerofleet bench hardware`), and rounding errors average out least over few units.
const BF16_UNITS_MIN: usize = 128;

/// Builds evaluators for the threads of a process. For each board the variant is chosen once, and each weights
/// version is packed once.
///
/// If integers are allowed, each version is calibrated and checked on recently evaluated positions. It is evaluated
/// in floating point until there are such positions, and if the check fails. An [`adaptive`](Self::adaptive) kernel
/// checks bfloat16 in the same way, against float32.
#[derive(Debug)]
pub struct Kernel {
    /// Floating-point paths to try, in order.
    paths: Vec<KernelVariant>,
    /// Integer path to use.
    int8: Option<KernelVariant>,
    /// Integer path to use if it is faster than floating point.
    trial: Option<IntegerTrial>,
    /// Positions for checking a lower precision.
    recent: Option<Arc<Recent>>,
    /// Packed forms of the last network, one per board; the last packed version is at the end.
    packed: Mutex<Vec<Packed>>,
    latent: Mutex<PackedLatent>,
}

/// The same as [`Packed`] for MuZero networks, which have one board.
#[derive(Debug, Default)]
struct PackedLatent {
    choice: Option<(Architecture, ChosenVariant)>,
    version: Option<(Digest, Arc<LatentNetwork>)>,
}

/// A network on one board: each board has a separate path choice and packed version.
#[derive(Debug, Clone)]
struct Packed {
    architecture: Architecture,
    /// Chosen floating-point path.
    choice: Option<ChosenVariant>,
    /// Last version: digest, packed weights, and the path in use.
    version: Option<(Digest, Arc<Tower>, ChosenVariant)>,
    /// Latest measurement of an integer trial.
    speed_up: Option<SpeedUp>,
}

impl Packed {
    /// Returns whether the network is the same as an architecture's, on another board.
    fn is_of_another_board(&self, architecture: &Architecture) -> bool {
        self.architecture != *architecture
            && self.architecture.on(architecture.board()).is_ok_and(|on_board| on_board == *architecture)
    }
}

impl Kernel {
    /// Creates a kernel that uses the first working path of `paths`. It uses integers if one of `paths` multiplies
    /// integers or `precision` is int8. If all `paths` multiply integers, any floating-point path may be used
    /// alongside.
    #[must_use]
    pub fn new(mut paths: Vec<KernelVariant>, precision: PrecisionPreference) -> Self {
        let named = paths.iter().copied().find(|path| path.is_int8());
        let int8 = named.or_else(|| KernelVariant::fast_integers().filter(|_| precision == PrecisionPreference::Int8));
        paths.retain(|path| !path.is_int8());
        if paths.is_empty() {
            paths.extend(KernelVariant::ALL);
        }
        let recent = int8.map(|_| Arc::default());
        Self { paths, int8, trial: None, recent, packed: Mutex::default(), latent: Mutex::default() }
    }

    /// Makes the kernel check bfloat16 against float32 on recent positions with every new version, and evaluate a
    /// version that drifts in float32. This is for callers that evaluate the positions of a run: the predictions of a
    /// version depend on earlier positions.
    #[must_use]
    pub fn adaptive(mut self) -> Self {
        self.recent.get_or_insert_default();
        self
    }

    /// Makes the kernel multiply integers with `path` if they agree with floating point and are
    /// [`INTEGERS_SPEEDUP_MIN`] times as fast, measured per network by the clock `now` once there are recent
    /// positions. For the callers of [`adaptive`](Self::adaptive), which this includes.
    ///
    /// [`INTEGERS_SPEEDUP_MIN`]: crate::INTEGERS_SPEEDUP_MIN
    #[must_use]
    pub fn try_integers(mut self, path: KernelVariant, now: fn() -> Instant) -> Self {
        self.trial = Some(IntegerTrial { path, now });
        self.adaptive()
    }

    /// Builds an evaluator of a published version for one thread.
    ///
    /// # Errors
    /// The same as [`choose_variant`] and [`Tower::new`]: [`Error::Unsupported`] means that another evaluator is
    /// needed, and so does [`Error::Unavailable`].
    pub fn evaluator(&self, manifest: &Manifest, bytes: &[u8]) -> Result<TowerEvaluator, Error> {
        // The state is consistent even if another thread panicked: it changes only after everything has succeeded.
        let mut all = self.packed.lock().unwrap_or_else(PoisonError::into_inner);
        let architecture = &manifest.architecture;
        let new = || Packed { architecture: architecture.clone(), choice: None, version: None, speed_up: None };
        let mut packed = all.iter().find(|packed| packed.architecture == *architecture).cloned().unwrap_or_else(new);
        let tower = match &packed.version {
            Some((digest, tower, _)) if *digest == manifest.digest => Arc::clone(tower),
            _ => {
                let (tower, used) = self.pack(&mut packed, bytes)?;
                packed.version = Some((manifest.digest, Arc::clone(&tower), used));
                tower
            }
        };
        let mut evaluator = TowerEvaluator::new(tower, manifest.version);
        let is_bf16 = packed.choice.as_ref().is_some_and(|chosen| chosen.path.is_bf16());
        all.retain(|packed| packed.is_of_another_board(architecture));
        all.push(packed);
        let is_coarse = is_bf16 || self.int8.is_some() || self.trial.is_some();
        evaluator.recent = self.recent.clone().filter(|_| is_coarse);
        Ok(evaluator)
    }

    /// Builds an evaluator of a published MuZero version for one thread.
    ///
    /// It computes in floating point; bfloat16 is not checked against float32.
    ///
    /// # Errors
    /// The same as [`choose_latent_variant`] and [`LatentNetwork::new`]: [`Error::Unsupported`] means that another
    /// evaluator is needed, and so does [`Error::Unavailable`].
    pub fn latent_evaluator(&self, manifest: &Manifest, bytes: &[u8]) -> Result<LatentEvaluator, Error> {
        // The state is consistent even if another thread panicked: each part is assigned at once.
        let mut packed = self.latent.lock().unwrap_or_else(PoisonError::into_inner);
        let architecture = &manifest.architecture;
        let network = match &packed.version {
            Some((digest, network)) if *digest == manifest.digest => Arc::clone(network),
            _ => {
                let path = match &packed.choice {
                    Some((known, chosen)) if known == architecture => chosen.path,
                    _ => {
                        let mut paths = self.paths.clone();
                        if network::is_vector(architecture) && architecture.channels < BF16_UNITS_MIN {
                            paths.sort_by_key(|path| path.is_bf16());
                        }
                        let chosen = choose_latent_variant(architecture, &paths)?;
                        packed.choice.insert((architecture.clone(), chosen)).1.path
                    }
                };
                let network = Arc::new(LatentNetwork::new(architecture, bytes, path)?);
                packed.version = Some((manifest.digest, Arc::clone(&network)));
                network
            }
        };
        Ok(LatentEvaluator::new(network, manifest.version))
    }

    /// Returns the path of the last MuZero version, with the reason; `None` before the first.
    #[must_use]
    pub fn chosen_latent(&self) -> Option<ChosenVariant> {
        let packed = self.latent.lock().unwrap_or_else(PoisonError::into_inner);
        packed.choice.as_ref().filter(|_| packed.version.is_some()).map(|(_, chosen)| chosen.clone())
    }

    /// Returns the path of the last version, with the reason; `None` before the first.
    #[must_use]
    pub fn chosen(&self) -> Option<ChosenVariant> {
        let packed = self.packed.lock().unwrap_or_else(PoisonError::into_inner);
        packed.last()?.version.as_ref().map(|(_, _, used)| used.clone())
    }

    fn pack(&self, packed: &mut Packed, bytes: &[u8]) -> Result<(Arc<Tower>, ChosenVariant), Error> {
        let Packed { ref architecture, ref mut choice, .. } = *packed;
        let chosen = match choice {
            Some(chosen) => chosen.clone(),
            None => choice.insert(choose_variant(architecture, &self.paths)?).clone(),
        };
        Error::check(architecture)?;
        let folded = Folded::from_safetensors(architecture, bytes)?;
        let float = Arc::new(Tower::from_folded(&folded, chosen.path, None)?);
        let &Architecture { planes, height, width, .. } = architecture;
        let sample = self.recent.as_ref().and_then(|recent| recent.sample(ObservationShape { planes, height, width }));
        let (float, chosen) = match &sample {
            Some(sample) if chosen.path.is_bf16() => self.checked(&folded, float, chosen, sample)?,
            _ => (float, chosen),
        };
        match (self.int8, self.trial) {
            (Some(path), _) => self.integers(&folded, path, float, chosen, sample.as_ref()),
            (None, Some(trial)) => self.tried(packed, &folded, trial, float, chosen, sample.as_ref()),
            (None, None) => Ok((float, chosen)),
        }
    }

    /// Returns a version in integers once there is a sample, if the predictions agree with floating point.
    fn integers(
        &self,
        folded: &Folded,
        path: KernelVariant,
        float: Arc<Tower>,
        chosen: ChosenVariant,
        sample: Option<&Batch>,
    ) -> Result<(Arc<Tower>, ChosenVariant), Error> {
        if !float.architecture().design.is_default() {
            return Ok((float, ChosenVariant { reason: INTEGERS_TAKE.to_owned(), ..chosen }));
        }
        let Some(sample) = sample else {
            let reason = format!("until {path} has positions for calibration");
            return Ok((float, ChosenVariant { reason, ..chosen }));
        };
        match drift::quantise(folded, path, &float, sample)? {
            Ok(tower) => {
                let reason = format!("calibrated on recent positions, checked against {}", float.path());
                Ok((tower, ChosenVariant { path, reason }))
            }
            Err(drift) => {
                let reason = format!("{path} predictions differ: {drift}");
                Ok((float, ChosenVariant { reason, ..chosen }))
            }
        }
    }

    /// Returns a version in integers if they are worth it for the network.
    fn tried(
        &self,
        packed: &mut Packed,
        folded: &Folded,
        trial: IntegerTrial,
        float: Arc<Tower>,
        chosen: ChosenVariant,
        sample: Option<&Batch>,
    ) -> Result<(Arc<Tower>, ChosenVariant), Error> {
        let Some(sample) = sample.filter(|_| float.architecture().design.is_default()) else {
            return Ok((float, chosen));
        };
        let slow = |speed_up: &SpeedUp| {
            let reason = format!("{} is {:.2} times as fast, not enough for int8", trial.path, speed_up.ratio);
            ChosenVariant { reason, ..chosen.clone() }
        };
        let known = packed.speed_up.as_ref().filter(|speed_up| speed_up.is_of(&float));
        if let Some(speed_up) = known.filter(|speed_up| !speed_up.suffices()) {
            return Ok((Arc::clone(&float), slow(speed_up)));
        }
        let (tower, used) = self.integers(folded, trial.path, Arc::clone(&float), chosen.clone(), Some(sample))?;
        if known.is_some() || !tower.path().is_int8() {
            return Ok((tower, used));
        }
        let speed_up = packed.speed_up.insert(trial.measure(&float, &tower, sample));
        match speed_up.suffices() {
            true => Ok((tower, used)),
            false => Ok((float, slow(speed_up))),
        }
    }

    /// Returns a version in bfloat16 if the predictions agree with float32, otherwise in float32. If only bfloat16 is
    /// allowed, the version remains in bfloat16.
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
        let reason = format!("{} predictions differ: {drift}", chosen.path);
        Ok((fine, ChosenVariant { path, reason }))
    }
}

/// A path with the reason for the choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChosenVariant {
    /// Chosen path.
    pub path: KernelVariant,
    /// Human-readable, for example the rejected paths, each with the reason.
    pub reason: String,
}

impl std::fmt::Display for ChosenVariant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.path, self.reason)
    }
}

/// Minimum speed advantage of a narrower path over a wider one, so that two runs on one machine make the same choice.
const WORTH_IT: f64 = 1.2;

/// Returns the paths that are available on this machine, fastest first by multiplication speed in registers; `now` is
/// the clock. Of two paths with nearly equal speed the wider comes first. Takes a few milliseconds.
///
/// The widest is not always the fastest: on some CPUs a bfloat16 instruction makes twice the products of a float32
/// instruction in four times the time.
#[must_use]
pub fn fastest_first(now: &mut dyn FnMut() -> Instant) -> Vec<KernelVariant> {
    let available = KernelVariant::ALL.into_iter().filter(|path| path.is_available());
    order(available.map(|path| (path, speed(path, now))).collect())
}

/// Returns multiply-adds per second, the best of a few short measurements.
fn speed(path: KernelVariant, now: &mut dyn FnMut() -> Instant) -> f64 {
    const ROUNDS: usize = 10_000;
    const TURNS: usize = 5;
    let turn = |_| {
        let begun = now();
        let multiply_adds = path.burst(ROUNDS);
        multiply_adds as f64 / now().duration_since(begun).max(Duration::from_nanos(1)).as_secs_f64()
    };
    (0..TURNS).map(turn).fold(0.0, f64::max)
}

/// Sorts paths with speeds, given widest first, into the order to try.
fn order(mut paths: Vec<(KernelVariant, f64)>) -> Vec<KernelVariant> {
    let mut ordered = Vec::with_capacity(paths.len());
    while !paths.is_empty() {
        let fastest = paths.iter().map(|&(_, speed)| speed).fold(0.0, f64::max);
        let next = paths.iter().position(|&(_, speed)| speed * WORTH_IT >= fastest).unwrap_or(0);
        ordered.push(paths.remove(next).0);
    }
    ordered
}

/// Returns the first path that is available on this machine and computes a small network with the same board and
/// parts correctly.
///
/// Takes some milliseconds; callers that swap weights versions choose once.
///
/// # Errors
/// [`Error::Unsupported`] for an architecture that the kernel does not support, [`Error::Unavailable`] if no path is
/// left.
pub fn choose_variant(architecture: &Architecture, paths: &[KernelVariant]) -> Result<ChosenVariant, Error> {
    // Unsupported architectures are rejected before their dimensions are reduced.
    Error::check(architecture)?;
    first_correct(paths, |path| self_check(path, architecture))
}

/// Returns the first path that is available on this machine and computes a small MuZero network with the same board
/// and parts correctly; takes some milliseconds.
///
/// # Errors
/// The same as [`choose_variant`].
pub fn choose_latent_variant(architecture: &Architecture, paths: &[KernelVariant]) -> Result<ChosenVariant, Error> {
    Error::check_latent(architecture)?;
    first_correct(paths, |path| latent::self_check(path, &smaller(architecture)))
}

/// Returns the first path that passes a check; the inner error of the check is the reason to reject a path.
fn first_correct(
    paths: &[KernelVariant],
    check: impl Fn(KernelVariant) -> Result<Result<(), String>, Error>,
) -> Result<ChosenVariant, Error> {
    let mut passed_over = Vec::new();
    let mut last = None;
    for &path in paths {
        let checked = if path.is_available() { check(path)? } else { Err("not available on this machine".to_owned()) };
        match checked {
            Ok(()) => {
                let wider = KernelVariant::ALL.into_iter().find(|other| paths.contains(other) && other.is_available());
                let reason = match wider {
                    _ if !passed_over.is_empty() => passed_over.join(", "),
                    Some(wider) if wider != path => format!("faster than {wider}"),
                    _ => "the widest available".to_owned(),
                };
                return Ok(ChosenVariant { path, reason });
            }
            Err(reason) => {
                passed_over.push(format!("{path}: {reason}"));
                last = Some((path, reason));
            }
        }
    }
    let (path, reason) = last.unwrap_or((KernelVariant::PortableF32, "no path is allowed".to_owned()));
    Err(Error::Unavailable { path, reason })
}

/// Returns the maximum error in logits, which are of order one in random networks.
fn tolerance(path: KernelVariant) -> f64 {
    if path.is_bf16() { 0.05 } else { 1e-3 }
}

/// Compares the path with float64 on a small random network; the inner error is the reason to reject the path.
fn self_check(path: KernelVariant, architecture: &Architecture) -> Result<Result<(), String>, Error> {
    const SEED: u64 = 1;
    const TIMES: usize = 9;
    let small = smaller(architecture);
    let network = Folded::random(&small, SEED)?;
    let tower = Tower::from_folded(&network, path, None)?;
    let mut workspace = tower.workspace();
    let len = small.planes * small.height * small.width;
    // Two positions, so that one has a neighbour, repeated often enough for every arrangement; a pattern of zeros and
    // ones without the period of a board.
    let observations: Vec<f32> = (0..2 * len).map(|i| if i * i % 11 < 4 { 1.0 } else { 0.0 }).collect();
    let expected: Vec<Vec<f64>> =
        observations.chunks_exact(len).map(|observation| reference::logits(&network, observation)).collect();
    let observations = observations.repeat(TIMES);
    for pass in tower.passes(2 * TIMES) {
        tower.forward(&mut workspace, pass, &observations, |_, _, _| {});
        for position in 0..pass.positions {
            let value = tower.value(&workspace, position);
            let got = tower.policy(&workspace, position).iter().chain(&value).map(|&logit| f64::from(logit));
            let expected = &expected[(pass.first + position) % 2];
            let errors = got.zip(expected).map(|(got, expected)| (got - expected).abs());
            // A maximum ignores NaN, which must not pass the check.
            let worst = errors.map(|error| if error.is_nan() { f64::INFINITY } else { error }).fold(0.0, f64::max);
            if worst > tolerance(path) {
                return Ok(Err(format!("off by {worst:.3} in the self-check")));
            }
        }
    }
    Ok(Ok(()))
}

/// Returns an architecture with the same board and parts but fewer channels, blocks and actions, for a check in
/// milliseconds.
fn smaller(architecture: &Architecture) -> Architecture {
    // Half of the channels, in a bottleneck, is still a multiple of 16.
    let most = if architecture.design.block == BlockKind::Bottleneck { 64 } else { 48 };
    let channels = architecture.channels.min(most);
    let inner = architecture.design.block.inner_channels(channels);
    let Design { attention, attention_heads: heads, .. } = architecture.design;
    let heads = (1..=heads.min(channels)).rev().find(|heads| channels.is_multiple_of(*heads)).unwrap_or(0);
    // Pooled heads are small for any number of actions, which has to fit the board.
    let actions = match architecture.design.heads {
        HeadKind::Flattened => architecture.actions.min(40),
        HeadKind::Pooled => architecture.actions,
    };
    Architecture {
        game: architecture.game.clone(),
        channels,
        blocks: architecture.blocks.min(3),
        actions,
        squeeze_excitation: architecture.squeeze_excitation.min(8),
        global_pooling: architecture.global_pooling.min(inner / 2),
        design: Design { attention: attention.min(1), attention_heads: heads, ..architecture.design },
        ..*architecture
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_faster_path_comes_first_and_of_two_alike_the_wider() {
        use KernelVariant::{Avx2F32, Avx512Bf16, Avx512F32, PortableF32};
        let order =
            |speeds: [f64; 4]| order([Avx512Bf16, Avx512F32, Avx2F32, PortableF32].into_iter().zip(speeds).collect());
        assert_eq!(order([160.0, 80.0, 40.0, 3.0]), [Avx512Bf16, Avx512F32, Avx2F32, PortableF32]);
        assert_eq!(order([40.0, 90.0, 48.0, 3.0]), [Avx512F32, Avx512Bf16, Avx2F32, PortableF32]);
        assert_eq!(order([40.0, 90.0, 49.0, 3.0]), [Avx512F32, Avx2F32, Avx512Bf16, PortableF32]);
        assert_eq!(order([80.0, 90.0, 48.0, 3.0]), [Avx512Bf16, Avx512F32, Avx2F32, PortableF32]);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "paths are measured with a real clock")]
    fn every_path_of_this_machine_is_measured_and_listed() {
        let mut ticks = 0;
        let mut now = || {
            ticks += 1;
            Instant::now()
        };
        let paths = fastest_first(&mut now);
        let mut available: Vec<KernelVariant> =
            KernelVariant::ALL.into_iter().filter(|path| path.is_available()).collect();
        assert!(ticks >= 2 * available.len());
        available.sort_by_key(|path| path.name());
        let mut sorted = paths;
        sorted.sort_by_key(|path| path.name());
        assert_eq!(sorted, available);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "paths are measured with a real clock")]
    fn f32_and_f16_exclude_every_path_in_bfloat16() {
        for precision in [PrecisionPreference::F32, PrecisionPreference::F16] {
            let kernel = KernelPreference::Auto.kernel(precision, &mut Instant::now).unwrap();
            assert!(!kernel.paths.is_empty() && kernel.paths.iter().all(|path| !path.is_bf16()), "{:?}", kernel.paths);
        }
    }
}
