//! Trains stem and tower of a network on the CPU with a custom backward pass: libtorch computes the convolutions, the
//! crate `gradients` the operations between them and the gradients of their weights.

use gradients::{Affine, Norm, Path, Shape, WeightGradient};
use half::bf16;
use network::{NORM_EPSILON, Role};
use tch::{Device, Kind, Tensor};
use weights::{Architecture, Model};

use crate::{
    Error, Network,
    network::{download, in_order, read, upload},
    tower::NORM_MOMENTUM,
};
use training::Entry;

/// Zero padding of a convolution, vertical and horizontal.
const BORDER: [i64; 2] = [1, 1];
/// A stride or a dilation of one.
const ONE: [i64; 2] = [1, 1];

/// Trains stem and tower of a network in bfloat16, parameters and their gradients in float32.
#[derive(Debug)]
pub(crate) struct CustomBackward {
    weights: WeightGradient,
}

/// The results of the forward pass that the backward pass needs.
#[derive(Debug)]
pub(crate) struct Tape {
    /// `[B, H, W, C]`.
    observations: Cells,
    /// The stem, then two of each block.
    layers: Vec<Layer>,
}

/// A convolution with its batch norm, the addition of a skip connection if there is one, and ReLU.
#[derive(Debug)]
struct Layer {
    declared: ::network::Layer,
    /// `[F, C, 3, 3]`, in bfloat16.
    weight: Tensor,
    /// The output of the convolution, `[B, H, W, F]`.
    z: Cells,
    /// The output of the layer, `[B, H, W, F]`.
    y: Cells,
    norm: Norm,
}

impl Tape {
    /// The output of the tower, `[B, F, H, W]`, which must not be written to.
    pub(crate) fn output(&self) -> Result<Tensor, Error> {
        self.layers.last().expect("a network has a stem").y.tensor()
    }
}

impl CustomBackward {
    /// Returns the fastest implementation on this machine for this architecture, if it is faster than libtorch: for
    /// AlphaZero networks of the default design whose blocks have no pooling and excitation, on a CPU with matrix
    /// tiles.
    pub(crate) fn fastest(architecture: &Architecture) -> Option<Self> {
        let has_plain_blocks = architecture.squeeze_excitation == 0 && architecture.global_pooling == 0;
        let is_plain = has_plain_blocks && architecture.design.is_default() && architecture.model == Model::Alphazero;
        (is_plain && Path::Amx.is_available()).then(|| Self::new(Path::Amx))
    }

    pub(crate) fn new(path: Path) -> Self {
        Self { weights: WeightGradient::new(path) }
    }

    /// Runs observations `[B, C, H, W]` through stem and tower, and updates the running statistics.
    pub(crate) fn forward(&self, network: &Network, observations: &Tensor) -> Result<Tape, Error> {
        let _guard = tch::no_grad_guard();
        let observations = Cells::from_tensor(observations)?;
        let declared = network.layers.alphazero()?;
        let mut layers = vec![forward(network, &declared.stem, &observations, None)?];
        for (index, block) in declared.blocks.iter().enumerate() {
            let input = &layers[2 * index].y;
            let first = forward(network, &block.first, input, None)?;
            let second = forward(network, &block.second, &first.y, Some(input))?;
            layers.extend([first, second]);
        }
        Ok(Tape { observations, layers })
    }

    /// Returns the gradient `[P]` of `loss`. libtorch computes the gradients of the parameters of the heads and of `x`
    /// `[B, F, H, W]`, the output of the tower.
    pub(crate) fn gradient(
        &mut self,
        network: &Network,
        tape: &Tape,
        x: &Tensor,
        loss: &Tensor,
    ) -> Result<Tensor, Error> {
        let parameters = network.layout.parameters.iter().zip(&network.parameters);
        let (entries, of_heads): (Vec<_>, Vec<_>) = parameters.filter(|(entry, _)| !is_of_tower(entry)).unzip();
        let inputs: Vec<&Tensor> = std::iter::once(x).chain(of_heads).collect();
        let gradients = Tensor::f_run_backward(&[loss], &inputs, false, false)?;

        let _guard = tch::no_grad_guard();
        let mut flat = vec![0.0; network.parameter_count()];
        self.backward(network, tape, &gradients[0], &mut flat)?;
        for (entry, gradient) in entries.into_iter().zip(&gradients[1..]) {
            read(&in_order(entry, gradient)?, &mut flat[entry.offset..][..entry.len])?;
        }
        upload(&flat, network.device())
    }

    /// Runs the backward pass from the gradient `[B, F, H, W]` of the output of the tower: the gradients of parameters
    /// are written to their places in `flat`, `[P]`.
    fn backward(&mut self, network: &Network, tape: &Tape, gradient: &Tensor, flat: &mut [f32]) -> Result<(), Error> {
        let _guard = tch::no_grad_guard();
        let Tape { observations, layers } = tape;
        let mut gradient = Cells::from_tensor(gradient)?.copy()?;
        // The gradient of the skip connection of a block is that of the sum it was added to plus that from within the
        // block.
        let mut besides = None;
        for block in (0..network.architecture().blocks).rev() {
            let (input, first, second) = (&layers[2 * block].y, &layers[2 * block + 1], &layers[2 * block + 2]);
            let of_second = self.through(network, second, &first.y, &mut gradient, besides.as_ref(), flat)?;
            let mut inner = second.of_input(&of_second)?;
            let of_first = self.through(network, first, input, &mut inner, None, flat)?;
            besides = Some(first.of_input(&of_first)?);
        }
        self.through(network, &layers[0], observations, &mut gradient, besides.as_ref(), flat)?;
        Ok(())
    }

    /// Returns the gradient of the convolution of a layer from that of its output, which is `gradient` plus, if there
    /// is a second path, its gradient `besides`; `gradient` becomes that of the skip connection.
    fn through(
        &mut self,
        network: &Network,
        layer: &Layer,
        input: &Cells,
        gradient: &mut Cells,
        besides: Option<&Cells>,
        flat: &mut [f32],
    ) -> Result<Cells, Error> {
        let [positions, height, width, inputs] = input.size();
        let [.., outputs] = layer.z.size();
        let mut of_z = layer.z.room()?;
        let scale = download(network.of(&layer.declared, Role::NormScale))?;
        let (z, y, besides) = (layer.z.values(), layer.y.values(), besides.map(Cells::values));
        let affine = layer.norm.backward(&scale, z, y, gradient.values_mut(), besides, of_z.values_mut());
        let place = |role| network.layout.parameter(&layer.declared.tensor_name(role));
        flat[place(Role::NormScale)].copy_from_slice(&affine.scale);
        flat[place(Role::NormShift)].copy_from_slice(&affine.shift);
        let shape = Shape { positions, height, width, inputs, outputs };
        self.weights.compute(shape, input.values(), of_z.values(), &mut flat[place(Role::Convolution)]);
        Ok(of_z)
    }
}

/// Returns whether a parameter is one of stem and tower.
fn is_of_tower(entry: &Entry) -> bool {
    entry.tensor.name.starts_with("stem.") || entry.tensor.name.starts_with("block.")
}

/// Runs a layer, with the skip connection `around` if there is one.
fn forward(
    network: &Network,
    declared: &::network::Layer,
    input: &Cells,
    around: Option<&Cells>,
) -> Result<Layer, Error> {
    let part = |role| network.of(declared, role);
    let weight = part(Role::Convolution).f_to_kind(Kind::BFloat16)?;
    let z = Cells::from_tensor(&input.tensor()?.f_conv2d(&weight, None::<&Tensor>, ONE, BORDER, ONE, 1)?)?;
    let mut y = z.room()?;
    let (scale, shift) = (download(part(Role::NormScale))?, download(part(Role::NormShift))?);
    let affine = Affine { scale: &scale, shift: &shift };
    let norm = Norm::forward(affine, NORM_EPSILON as f32, z.values(), around.map(Cells::values), y.values_mut());

    let count = (z.values().len() / scale.len()) as f32;
    // Running variances are sample variances, divided by N − 1.
    let variance: Vec<f32> = norm.variance.iter().map(|variance| variance * count / (count - 1.0).max(1.0)).collect();
    for (role, of_batch) in [(Role::NormMean, &norm.mean), (Role::NormVariance, &variance)] {
        let _ = part(role).shallow_clone().f_lerp_(&Tensor::f_from_slice(of_batch)?, NORM_MOMENTUM)?;
    }
    Ok(Layer { declared: declared.clone(), weight, z, y, norm })
}

impl Layer {
    /// Returns the gradient of the input, `[B, H, W, C]`, from that of the output of the convolution.
    fn of_input(&self, of_z: &Cells) -> Result<Cells, Error> {
        let of_z = of_z.tensor()?;
        Cells::from_tensor(&of_z.f_conv_transpose2d(&self.weight, None::<&Tensor>, ONE, BORDER, [0, 0], 1, ONE)?)
    }
}

/// Activations on the CPU in bfloat16, `[B, H, W, C]` in memory order, for code that computes on them without libtorch.
#[derive(Debug)]
pub(crate) struct Cells(Tensor);

impl Cells {
    /// Takes over a tensor `[B, C, H, W]`, which is copied unless it is bfloat16 on the CPU with its channels last.
    pub(crate) fn from_tensor(tensor: &Tensor) -> Result<Self, Error> {
        let tensor = tensor.f_detach()?.f_to_device(Device::Cpu)?.f_to_kind(Kind::BFloat16)?;
        Ok(Self(tensor.f_permute([0, 2, 3, 1])?.f_contiguous()?))
    }

    /// Allocates activations of the same shape, with unspecified contents.
    pub(crate) fn room(&self) -> Result<Self, Error> {
        Ok(Self(self.0.f_empty_like()?))
    }

    /// Copies the activations to new memory.
    pub(crate) fn copy(&self) -> Result<Self, Error> {
        Ok(Self(self.0.f_detach_copy()?))
    }

    /// The tensor `[B, C, H, W]` in the same memory.
    pub(crate) fn tensor(&self) -> Result<Tensor, Error> {
        Ok(self.0.f_permute([0, 3, 1, 2])?)
    }

    /// Returns B, H, W and C.
    pub(crate) fn size(&self) -> [usize; 4] {
        let size = self.0.size();
        std::array::from_fn(|dimension| usize::try_from(size[dimension]).expect("sizes are not negative"))
    }

    /// `[B, H, W, C]`.
    pub(crate) fn values(&self) -> &[bf16] {
        // SAFETY: the tensor is bfloat16, contiguous and on the CPU, which is how every one of them is made; it keeps
        // its memory for as long as `self` is borrowed. Nothing writes to it meanwhile: that takes `values_mut`, or an
        // operation of libtorch that works in place, and none is given these tensors.
        unsafe { std::slice::from_raw_parts(self.0.data_ptr().cast::<bf16>(), self.0.numel()) }
    }

    /// `[B, H, W, C]`, for writing, where no other tensor shares the memory.
    pub(crate) fn values_mut(&mut self) -> &mut [bf16] {
        // SAFETY: as above, and no other tensor shares the memory.
        unsafe { std::slice::from_raw_parts_mut(self.0.data_ptr().cast::<bf16>(), self.0.numel()) }
    }
}
