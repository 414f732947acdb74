//! State of low-precision training in addition to the weights: the loss scale, and the layers switched to float32.

use std::collections::BTreeMap;

use network::{Entry, Reader};

use crate::{Error, Layout};

/// Number of training steps between two checks of the layers.
pub const CHECK_INTERVAL: u64 = 500;

/// Maximum relative L2 error of a layer's weight gradient in low precision; above it, the layer is switched to float32.
pub const GRADIENT_ERROR_MAX: f64 = 0.05;

/// Maximum number of positions in a check. The error is a ratio of sums over a layer's weights, which a few positions
/// estimate well.
pub const CHECK_POSITIONS: usize = 256;

/// Loss scale in float16, without which small gradients would underflow to 0 (Micikevicius et al. 2018). It is a power
/// of two, so that scaling causes no rounding.
///
/// The scale follows the defaults of `torch.amp.GradScaler`. A step with a non-finite gradient is skipped and halves
/// the scale; [`GROWTH_STEPS`](Self::GROWTH_STEPS) consecutive applied steps double the scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LossScale {
    /// Factor by which the loss is multiplied.
    pub factor: f32,
    /// Number of applied steps since the last change of the factor.
    pub good_steps: u32,
}

impl LossScale {
    /// Initial factor.
    pub const START: f32 = 65_536.0;
    /// Number of consecutive applied steps after which the factor doubles.
    pub const GROWTH_STEPS: u32 = 2_000;
    /// Minimum factor. At this factor, a non-finite gradient has another cause.
    pub const MIN: f32 = 1.0;
    /// Maximum factor, as in NVIDIA Apex.
    pub const MAX: f32 = 16_777_216.0;

    /// Returns the initial loss scale.
    #[must_use]
    pub fn new() -> Self {
        Self { factor: Self::START, good_steps: 0 }
    }
}

impl Default for LossScale {
    fn default() -> Self {
        Self::new()
    }
}

/// Precision decisions of a trainer, stored in a checkpoint.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MixedPrecision {
    /// Loss scale; `None` unless the precision is float16.
    pub loss_scale: Option<LossScale>,
    /// Layers switched to float32, each with the relative gradient error in low precision that exceeded the maximum.
    pub float32_layers: BTreeMap<String, f64>,
}

/// Names of the file entries for the loss scale: the factor, and the number of applied steps.
const FACTOR: &str = "loss_scale";
const GOOD_STEPS: &str = "loss_scale_steps";
/// Name prefix of the file entry for a layer in float32.
const FLOAT32: &str = "float32.";

impl MixedPrecision {
    /// Returns the entries for the optimiser file; none in float32 training.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> {
        let scale = self.loss_scale.iter().flat_map(|scale| {
            [Entry::real(FACTOR, scale.factor.into()), Entry::count(GOOD_STEPS, scale.good_steps.into())]
        });
        scale.chain(self.float32_layers.iter().map(|(layer, &error)| Entry::real(&format!("{FLOAT32}{layer}"), error)))
    }

    /// Reads the entries from the optimiser file. Entries are missing if another precision was used.
    pub(crate) fn read(reader: &mut Reader<'_>, layout: &Layout) -> Result<Self, Error> {
        let loss_scale = match reader.holds(FACTOR) {
            false => None,
            true => {
                let (factor, good_steps) = (reader.real(FACTOR)?, reader.count(GOOD_STEPS)?);
                let range = f64::from(LossScale::MIN)..=f64::from(LossScale::MAX);
                if !range.contains(&factor) {
                    return Err(Error::Setting { field: FACTOR, got: factor, expected: "from 1 to 2^24" });
                }
                let good_steps = u32::try_from(good_steps).unwrap_or(u32::MAX).min(LossScale::GROWTH_STEPS - 1);
                Some(LossScale { factor: factor as f32, good_steps })
            }
        };
        let mut float32_layers = BTreeMap::new();
        for layer in layers(layout) {
            let name = format!("{FLOAT32}{layer}");
            if reader.holds(&name) {
                float32_layers.insert(layer.to_owned(), reader.real(&name)?);
            }
        }
        Ok(Self { loss_scale, float32_layers })
    }
}

/// Returns the names of all layers with a convolution or a matrix.
pub fn layers(layout: &Layout) -> impl Iterator<Item = &str> {
    let weights = layout.parameters.iter().filter(|entry| entry.tensor.role.is_weight());
    weights.map(|entry| entry.tensor.layer())
}

/// Returns true if a layer with this relative gradient error must be switched to float32.
///
/// A non-finite error does not count. It means an overflowed gradient, for which the whole step is skipped, or a
/// float32 gradient of 0.
#[must_use]
pub fn loses_too_much(error: f64) -> bool {
    error.is_finite() && error > GRADIENT_ERROR_MAX
}

/// Returns the relative L2 error of `got`, a gradient in low precision, compared with `expected`, the float32 gradient
/// from the same inputs. The error is not finite if any number is not finite, or if all numbers in `expected` are 0.
#[must_use]
pub fn relative_error(got: &[f32], expected: &[f32]) -> f64 {
    let square = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>();
    let apart = square(&mut got.iter().zip(expected).map(|(&got, &expected)| f64::from(got) - f64::from(expected)));
    (apart / square(&mut expected.iter().map(|&x| f64::from(x)))).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModelLayers;
    use weights::Architecture;

    #[test]
    fn a_layer_goes_back_to_float32_for_an_error_above_five_per_cent_that_is_one_of_rounding() {
        assert_eq!(relative_error(&[3.0, 0.0], &[3.0, 4.0]), 0.8);
        assert_eq!(relative_error(&[3.0, 4.0], &[3.0, 4.0]), 0.0);
        let loses = |got: &[f32], expected: &[f32]| loses_too_much(relative_error(got, expected));
        assert!(loses(&[1.06], &[1.0]) && !loses(&[1.04], &[1.0]));
        assert!(loses(&[0.0, 0.0], &[1e-9, 1e-9]), "a gradient that became 0");
        for (got, expected) in [(1.0, 0.0), (0.0, 0.0), (f32::NAN, 1.0), (f32::INFINITY, 1.0), (1.0, f32::NAN)] {
            assert!(!loses(&[got], &[expected]), "{got} and {expected}");
        }
    }

    fn layout() -> Layout {
        let architecture = Architecture { squeeze_excitation: 4, ..Architecture::plain("any", [2, 3, 3], 9, [8, 1]) };
        ModelLayers::new(&architecture).unwrap().layout()
    }

    #[test]
    fn layers_are_named_as_the_network_names_them() {
        let layout = layout();
        let mut names: Vec<&str> = layers(&layout).collect();
        names.sort_unstable();
        let expected = [
            "block.0.excitation.hidden",
            "block.0.excitation.output",
            "block.0.first",
            "block.0.second",
            "policy",
            "policy.output",
            "stem",
            "value",
            "value.hidden",
            "value.output",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn decisions_about_precision_are_read_as_they_were_written_and_others_are_refused() {
        let read = |entries: Vec<Entry>| {
            let bytes = network::write(entries).unwrap();
            let mut reader = Reader::new(&bytes).unwrap();
            let read = MixedPrecision::read(&mut reader, &layout())?;
            reader.finish()?;
            Ok::<_, Error>(read)
        };
        let float32_layers = [("block.0.first".to_owned(), 0.25), ("value".to_owned(), f64::INFINITY)].into();
        let loss_scale = Some(LossScale { factor: 1024.0, good_steps: 7 });
        let all = MixedPrecision { loss_scale, float32_layers };
        assert_eq!(read(all.entries().collect()).unwrap(), all);
        assert_eq!(read(MixedPrecision::default().entries().collect()).unwrap(), MixedPrecision::default());
        for factor in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
            assert!(read(vec![Entry::real(FACTOR, factor), Entry::count(GOOD_STEPS, 0)]).is_err(), "{factor}");
        }
        assert!(read(vec![Entry::real("float32.block.7.first", 0.1)]).is_err(), "a layer that is not there");
    }
}
