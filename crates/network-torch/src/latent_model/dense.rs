use network::{Head, Layer, NORM_EPSILON, Role, Trunk, VALUE_HIDDEN};
use tch::{Kind, Tensor};

use super::heads::{self, Batched, Layers};
use super::size;
use crate::{Error, Network, muzero::rescale};
use inference::Precision;

/// A dense MuZero network, or AlphaZero network of returns, for inference. Latent states are `[B, H]`.
#[derive(Debug)]
pub(super) struct Dense {
    actions: usize,
    atoms: usize,
    representation: DenseTrunk,
    dynamics: Option<Dynamics>,
    /// Hidden layers of all heads as one.
    hidden: Hidden,
    outputs: Batched,
}

/// Layers of a step.
#[derive(Debug)]
struct Dynamics {
    trunk: DenseTrunk,
    /// Columns of the first matrix for one-hot actions, `[A, H]`.
    by_action: Tensor,
}

#[derive(Debug)]
struct DenseTrunk {
    input: Normed,
    blocks: Vec<[Normed; 2]>,
}

/// A matrix with layer norm.
#[derive(Debug)]
struct Normed {
    /// `[in, out]`.
    weight: Tensor,
    /// `[out]`.
    scale: Tensor,
    /// `[out]`.
    shift: Tensor,
}

/// Dense layers with the same inputs, each normed separately.
#[derive(Debug)]
struct Hidden {
    /// `[in, heads · 64]`.
    weight: Tensor,
    /// `[heads, 64]`.
    scale: Tensor,
    /// `[heads, 64]`.
    shift: Tensor,
}

impl Dense {
    /// Copies a dense network.
    pub(super) fn new(network: &Network, precision: Precision) -> Result<Self, Error> {
        let (layers, kind) = (network.layers.muzero()?, crate::rules::kind(precision));
        let heads = heads::all(layers);
        let dynamics = layers.dynamics.as_ref().map(|layers| Dynamics::new(network, &layers.transition.trunk, kind));
        let outputs: Vec<&Layer> = heads.iter().map(|head| &head.output).collect();
        Ok(Self {
            actions: network.architecture().actions,
            atoms: layers.value.output.outputs,
            representation: DenseTrunk::new(network, &layers.representation, kind)?,
            dynamics: dynamics.transpose()?,
            hidden: Hidden::new(network, &heads, kind)?,
            outputs: Batched::new(network, &outputs, kind, |weight| Ok(weight.shallow_clone()))?,
        })
    }
}

impl Layers for Dense {
    fn represent(&self, observations: &Tensor) -> Result<Tensor, Error> {
        let x = observations.f_view([observations.size()[0], -1])?;
        let trunk = &self.representation;
        trunk.after_matrix(&x.f_mm(&trunk.input.weight)?)
    }

    fn next(&self, states: &Tensor, actions: &Tensor) -> Result<Tensor, Error> {
        let Dynamics { trunk, by_action } = self.dynamics.as_ref().ok_or(heads::NO_DYNAMICS)?;
        let of_actions = by_action.f_index_select(0, actions)?;
        trunk.after_matrix(&of_actions.f_addmm(states, &trunk.input.weight)?)
    }

    fn predict(&self, states: &Tensor) -> Result<Tensor, Error> {
        let logits = self.outputs.apply(&self.hidden.apply(states)?.f_transpose(0, 1)?)?;
        let policy = logits.f_select(0, 0)?.f_narrow(1, 0, size(self.actions))?;
        let scalars = logits.f_narrow(0, 1, logits.size()[0] - 1)?;
        heads::answers(&policy, &scalars.f_narrow(2, 0, size(self.atoms))?)
    }
}

impl Dynamics {
    fn new(network: &Network, trunk: &Trunk, kind: Kind) -> Result<Self, Error> {
        let (units, actions) = (size(network.architecture().channels), size(network.architecture().actions));
        let mut trunk = DenseTrunk::new(network, trunk, kind)?;
        let whole = std::mem::replace(&mut trunk.input.weight, Tensor::new());
        trunk.input.weight = whole.f_narrow(0, 0, units)?.f_contiguous()?;
        Ok(Self { trunk, by_action: whole.f_narrow(0, units, actions)?.f_contiguous()? })
    }
}

impl DenseTrunk {
    fn new(network: &Network, trunk: &Trunk, kind: Kind) -> Result<Self, Error> {
        let Trunk::Dense { input, blocks } = trunk else { unreachable!("networks of vectors are dense") };
        let normed = |layer: &Layer| Normed::new(network, layer, kind);
        let blocks = blocks.iter().map(|[first, second]| Ok([normed(first)?, normed(second)?]));
        Ok(Self { input: normed(input)?, blocks: blocks.collect::<Result<_, Error>>()? })
    }

    /// Applies the trunk after the first matrix, to the product `[B, H]`, and rescales the states.
    fn after_matrix(&self, product: &Tensor) -> Result<Tensor, Error> {
        let mut x = self.input.norm(product)?;
        let _ = x.f_relu_()?;
        for [first, second] in &self.blocks {
            let mut y = first.norm(&x.f_mm(&first.weight)?)?;
            let _ = y.f_relu_()?;
            let mut z = second.norm(&y.f_mm(&second.weight)?)?;
            let _ = z.f_add_(&x)?.f_relu_()?;
            x = z;
        }
        rescale(&x)
    }
}

impl Normed {
    fn new(network: &Network, layer: &Layer, kind: Kind) -> Result<Self, Error> {
        let part = |role| network.of(layer, role).f_detach_copy()?.f_to_kind(kind);
        let weight = part(Role::Linear)?.f_transpose(0, 1)?.f_contiguous()?;
        Ok(Self { weight, scale: part(Role::NormScale)?, shift: part(Role::NormShift)? })
    }

    fn norm(&self, y: &Tensor) -> Result<Tensor, Error> {
        let shape = self.scale.size();
        Ok(y.f_layer_norm(shape.as_slice(), Some(&self.scale), Some(&self.shift), NORM_EPSILON, true)?)
    }
}

impl Hidden {
    fn new(network: &Network, heads: &[&Head], kind: Kind) -> Result<Self, Error> {
        let hidden = |head: &&Head| {
            let layer = head.hidden.as_ref().expect("heads of a dense network have a hidden layer");
            Normed::new(network, layer, kind)
        };
        let parts = heads.iter().map(hidden).collect::<Result<Vec<_>, _>>()?;
        let stack = |part: fn(&Normed) -> &Tensor| Tensor::f_stack(&parts.iter().map(part).collect::<Vec<_>>(), 0);
        let weights: Vec<&Tensor> = parts.iter().map(|part| &part.weight).collect();
        Ok(Self {
            weight: Tensor::f_cat(&weights, 1)?,
            scale: stack(|part| &part.scale)?,
            shift: stack(|part| &part.shift)?,
        })
    }

    /// Maps `[B, in]` to `[B, heads, 64]`.
    fn apply(&self, x: &Tensor) -> Result<Tensor, Error> {
        let units = size(VALUE_HIDDEN);
        let y = x.f_mm(&self.weight)?.f_view([-1, self.scale.size()[0], units])?;
        let y = y.f_layer_norm([units], None::<&Tensor>, None::<&Tensor>, NORM_EPSILON, true)?;
        let mut y = self.shift.f_addcmul(&y, &self.scale)?;
        let _ = y.f_relu_()?;
        Ok(y)
    }
}
