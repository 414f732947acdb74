use std::cell::Cell;
use std::sync::{Arc, OnceLock};

use ::network::{HeadKind, LayerKind, NormKind, mean_scale};
use tch::{Device, Tensor};
use weights::WeightsVersion;

use crate::{
    Error, Network,
    folded::{self, Folded},
    layers::Affine,
    network,
};
use inference::Precision;

/// Largest number of float16.
const F16_MAX: f64 = 65_504.0;

/// Callback for texts about a device.
type Report = Box<dyn Fn(String) + Send + Sync>;

/// Receiver of texts about a device, once there is one.
#[derive(Clone, Default)]
pub(super) struct Reports(Arc<OnceLock<Report>>);

impl std::fmt::Debug for Reports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reports").finish_non_exhaustive()
    }
}

impl Reports {
    /// Sends later texts to `report`; without effect if there is a receiver.
    pub(super) fn send_to(&self, report: impl Fn(String) + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(report));
    }

    pub(super) fn send(&self, text: String) {
        if let Some(report) = self.0.get() {
            report(text);
        }
    }
}

/// A folded network, in float16 with a second form in float32. From the first number beyond the range of float16 on,
/// in a weight or in an activation, float32 computes: an infinite number would make wrong predictions, and a limited
/// number too.
#[derive(Debug)]
pub(crate) struct Guarded {
    folded: Folded,
    /// In float32, if `folded` is in float16.
    wide: Option<Folded>,
    /// Whether `wide` computes the next batches.
    is_wide: Cell<bool>,
    version: WeightsVersion,
    reports: Reports,
}

impl Guarded {
    /// Folds `network` in place, in the formats of `device`; [`moved_to`](Self::moved_to) transfers the result there.
    pub(super) fn on_host(
        network: &Network,
        version: WeightsVersion,
        (device, precision): (Device, Precision),
        reports: Reports,
    ) -> Result<Self, Error> {
        let fold = |precision| Folded::on_host(network, precision, device)?.pinned();
        let is_f16 = precision == Precision::F16;
        let wide = is_f16.then(|| fold(Precision::F32)).transpose()?;
        let guarded = Self { folded: fold(precision)?, wide, is_wide: Cell::new(false), version, reports };
        if is_f16 && let Some(layer) = layer_beyond_f16(network)? {
            guarded.widen(&format!("the layer `{layer}` has a weight"));
        }
        Ok(guarded)
    }

    /// Moves the weights to the device for which they were folded.
    pub(super) fn moved_to(self, device: Device) -> Result<Self, Error> {
        let wide = self.wide.map(|wide| wide.moved_to(device)).transpose()?;
        Ok(Self { folded: self.folded.moved_to(device)?, wide, ..self })
    }

    /// Returns the form that computes the next batches.
    pub(super) fn current(&self) -> &Folded {
        self.wide.as_ref().filter(|_| self.is_wide.get()).unwrap_or(&self.folded)
    }

    /// Returns the weights, unless the form in float32 computes in their place.
    pub(super) fn unless_wide(&self) -> Option<&Folded> {
        (!self.is_wide.get()).then_some(&self.folded)
    }

    /// Replaces the logits `[B, A + 3]` of these observations by the logits in float32, if float16 could not hold them
    /// and float32 can. Waits for the device in that case.
    pub(super) fn check(&self, logits: &mut [f32], observations: &Tensor, positions: usize) -> Result<(), Error> {
        let is_finite = |logits: &[f32]| logits.iter().all(|logit| logit.is_finite());
        let Some(wide) = self.wide.as_ref().filter(|_| !is_finite(logits)) else { return Ok(()) };
        let _guard = tch::no_grad_guard();
        network::read(&wide.forward(observations, positions)?, logits)?;
        // An observation that is not finite is no fault of the network. Batches in flight may overflow too.
        if is_finite(logits) && !self.is_wide.get() {
            self.widen("an activation is");
        }
        Ok(())
    }

    fn widen(&self, what: &str) {
        self.is_wide.set(true);
        let version = self.version;
        self.reports.send(format!("weights {version} are evaluated in f32 instead of f16: {what} beyond {F16_MAX}"));
    }
}

/// Returns the name of the first layer with a folded weight or bias beyond the range of float16, if there is one.
fn layer_beyond_f16(network: &Network) -> Result<Option<String>, Error> {
    let _guard = tch::no_grad_guard();
    let architecture = network.architecture();
    // Pooled heads add the weight for scaled means, times this multiple, to the weight for means.
    let multiple = match architecture.design.heads {
        HeadKind::Pooled => mean_scale(architecture.height * architecture.width).abs(),
        HeadKind::Flattened => 0.0,
    };
    for layer in network.layers.alphazero()?.iter() {
        let tensors = match layer.kind {
            LayerKind::Convolution { norm: NormKind::Batch, .. } => {
                let Affine { weight, bias, .. } = folded::fold(network, layer)?;
                vec![weight, bias]
            }
            _ => layer.tensors().iter().map(|tensor| network.tensor(&tensor.name).shallow_clone()).collect(),
        };
        for tensor in tensors {
            let is_within = tensor.f_abs()?.f_le(F16_MAX / (1.0 + multiple))?.f_all()?;
            if is_within.f_int64_value(&[])? == 0 {
                return Ok(Some(layer.name.clone()));
            }
        }
    }
    Ok(None)
}
