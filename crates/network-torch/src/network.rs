use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tch::{Device, Kind, Tensor};
use weights::Architecture;

use crate::{
    Error,
    layout::{self, Entry, Form, Layout},
    tensors::{self, Reader},
};

/// The parameters and running statistics of a residual tower with a policy and a win/draw/loss value head.
///
/// Stem: 3×3 convolution, batch norm, ReLU. Each block: two of the same, the input added before the last ReLU (He et
/// al. 2016). Each head: 1×1 convolution to 32 channels, batch norm, ReLU, flattened by cell and then channel
/// `[B, H · W · 32]`; policy: linear to `[B, A]` logits; value: linear to 64, ReLU, linear to `[B, 3]` logits of a
/// win, a draw and a loss of the player to move.
///
/// With C channels an architecture may add to its blocks, counted from 0:
///
/// - Global pooling of G channels (Wu 2019, section 3.3), in every third block, I mod 3 = 2. Of the first convolution's
///   batch norm y, `y[G:] += W [mean of relu(y[:G]), max of relu(y[:G])] + b`, mean and max over the board, before the
///   ReLU. W `[C − G, 2G]`.
/// - Squeeze-and-excitation with S hidden units (Hu et al. 2018; the shift is Leela Chess Zero's), in every block. Of the
///   second convolution's batch norm z, `t = W₂ relu(W₁ [mean of z] + b₁) + b₂`, and the input is added to
///   `sigmoid(t[:C]) · z + t[C:]`. W₁ `[S, C]`, W₂ `[2C, S]`.
///
/// Batch norm adds 1e-5 to variances. Tensors are called `stem`, `block.I.first`, `block.I.second`, `policy` and `value`
/// with `.convolution.weight` and `.norm.{weight, bias, mean, variance}`, and `block.I.pooling`,
/// `block.I.excitation.hidden`, `block.I.excitation.output`, `policy.output`, `value.hidden` and `value.output` with
/// `.weight` and `.bias`.
///
/// Float32 throughout; whoever runs it in less casts as it goes.
#[derive(Debug)]
pub struct Network {
    architecture: Architecture,
    layout: Layout,
    /// All trained parameters, `[P]`; the optimiser works on it, `parameters` look into it.
    flat_parameters: Tensor,
    /// All running means and variances, `[S]`; training writes to it through `statistics`.
    flat_statistics: Tensor,
    parameters: Vec<Tensor>,
    statistics: Vec<Tensor>,
}

impl Network {
    /// A new network: weights uniform within `√(6 / fan-in)` (He et al. 2015), the outputs of the heads a tenth of
    /// it so that play begins undecided, those of global pooling and squeeze-and-excitation likewise so that training
    /// begins near the plain tower. The seed alone decides every number.
    ///
    /// # Errors
    /// [`Error::Architecture`] names the dimension that is out of range.
    pub fn new(architecture: &Architecture, device: Device, seed: u64) -> Result<Self, Error> {
        let layout = Layout::new(architecture)?;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let parameters: Vec<f32> =
            layout.parameters.iter().flat_map(|entry| initial_parameters(entry, &mut rng)).collect();
        let statistics: Vec<f32> = layout
            .statistics
            .iter()
            .flat_map(|entry| std::iter::repeat_n(if entry.form == Form::Variance { 1.0 } else { 0.0 }, entry.len))
            .collect();
        Self::from_flat(architecture, layout, upload(&parameters, device)?, upload(&statistics, device)?)
    }

    /// Reads what [`to_safetensors`](Self::to_safetensors) wrote.
    ///
    /// # Errors
    /// Anything but exactly the tensors of `architecture`, finite and of the right shape, is named and refused.
    pub fn from_safetensors(architecture: &Architecture, bytes: &[u8], device: Device) -> Result<Self, Error> {
        let layout = Layout::new(architecture)?;
        let mut reader = Reader::new(bytes)?;
        let parameters = reader.flat("", &layout.parameters)?;
        let statistics = reader.flat("", &layout.statistics)?;
        reader.finish()?;
        Self::from_flat(architecture, layout, upload(&parameters, device)?, upload(&statistics, device)?)
    }

    /// Every tensor by name as float32, convolutions as `[out, in, height, width]`. Equal networks give equal bytes.
    ///
    /// # Errors
    /// [`Error::Libtorch`] if the device cannot be read.
    pub fn to_safetensors(&self) -> Result<Vec<u8>, Error> {
        write(&self.layout, &self.flat_parameters, &self.flat_statistics)
    }

    /// What it was built from.
    #[must_use]
    pub fn architecture(&self) -> &Architecture {
        &self.architecture
    }

    /// How many trained parameters it has; running statistics are not among them.
    #[must_use]
    pub fn parameter_count(&self) -> usize {
        layout::total(&self.layout.parameters)
    }

    /// Where it lives.
    #[must_use]
    pub fn device(&self) -> Device {
        self.flat_parameters.device()
    }

    /// A network over two flat buffers in the order of `layout`.
    pub(crate) fn from_flat(
        architecture: &Architecture,
        layout: Layout,
        flat_parameters: Tensor,
        flat_statistics: Tensor,
    ) -> Result<Self, Error> {
        let parameters = views(&flat_parameters, &layout.parameters)?;
        for parameter in &parameters {
            let _ = parameter.f_set_requires_grad(true)?;
        }
        let statistics = views(&flat_statistics, &layout.statistics)?;
        Ok(Self {
            architecture: architecture.clone(),
            layout,
            flat_parameters,
            flat_statistics,
            parameters,
            statistics,
        })
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn flat_parameters(&self) -> &Tensor {
        &self.flat_parameters
    }

    pub(crate) fn flat_statistics(&self) -> &Tensor {
        &self.flat_statistics
    }

    /// The trained parameters in the order of the layout, each a view with its public shape.
    pub(crate) fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    /// The parameter called `name`.
    pub(crate) fn parameter(&self, name: &str) -> &Tensor {
        &self.parameters[layout::position(&self.layout.parameters, name)]
    }

    /// The running mean or variance called `name`.
    pub(crate) fn statistic(&self, name: &str) -> &Tensor {
        &self.statistics[layout::position(&self.layout.statistics, name)]
    }
}

/// A safetensors file of two flat buffers.
pub(crate) fn write(layout: &Layout, parameters: &Tensor, statistics: &Tensor) -> Result<Vec<u8>, Error> {
    let (parameters, statistics) = (download(parameters)?, download(statistics)?);
    let pieces = tensors::pieces("", &layout.parameters, &parameters);
    tensors::write(pieces.chain(tensors::pieces("", &layout.statistics, &statistics)))
}

/// `values` as a tensor `[n]` on `device`.
pub(crate) fn upload(values: &[f32], device: Device) -> Result<Tensor, Error> {
    Ok(Tensor::f_from_slice(values)?.f_to_device(device)?)
}

/// The numbers of a tensor, as float32 in the order they lie in.
pub(crate) fn download(tensor: &Tensor) -> Result<Vec<f32>, Error> {
    let mut values = vec![0.0; tensor.numel()];
    read(tensor, &mut values)?;
    Ok(values)
}

/// The same, into `values`, which is as long.
pub(crate) fn read(tensor: &Tensor, values: &mut [f32]) -> Result<(), Error> {
    let numel = values.len();
    Ok(tensor.f_detach()?.f_to_device(Device::Cpu)?.f_to_kind(Kind::Float)?.f_copy_data(values, numel)?)
}

/// A gradient for each of `entries`, as one tensor in the order of the flat buffer.
pub(crate) fn flatten(entries: &[Entry], gradients: &[Tensor]) -> Result<Tensor, Error> {
    let in_order = entries.iter().zip(gradients).map(|(entry, gradient)| in_order(entry, gradient));
    Ok(Tensor::f_cat(&in_order.collect::<Result<Vec<_>, _>>()?, 0)?)
}

/// The gradient of an entry, `[len]`, in the order of the flat buffer.
pub(crate) fn in_order(entry: &Entry, gradient: &Tensor) -> Result<Tensor, Error> {
    let gradient = match entry.form {
        Form::Convolution => gradient.f_permute([0, 2, 3, 1])?,
        Form::Matrix | Form::Vector | Form::Variance => gradient.shallow_clone(),
    };
    Ok(gradient.f_reshape([-1])?)
}

/// Leaves of the graph that share their memory with `flat`.
fn views(flat: &Tensor, entries: &[Entry]) -> Result<Vec<Tensor>, Error> {
    let size = |n: usize| i64::try_from(n).expect("dimensions were checked");
    let view = |entry: &Entry| -> Result<Tensor, Error> {
        let slice = flat.f_narrow(0, size(entry.offset), size(entry.len))?;
        let shaped = match (entry.form, entry.shape.as_slice()) {
            (Form::Convolution, &[outputs, inputs, height, width]) => {
                slice.f_view([outputs, height, width, inputs])?.f_permute([0, 3, 1, 2])?
            }
            (_, shape) => slice.f_view(shape)?,
        };
        Ok(shaped.f_detach()?)
    };
    entries.iter().map(view).collect()
}

fn initial_parameters(entry: &Entry, rng: &mut ChaCha8Rng) -> Vec<f32> {
    let bound = match entry.form {
        Form::Convolution | Form::Matrix => {
            let fan_in = entry.len as f32 / entry.shape[0] as f32;
            let begins_small = [".output.weight", ".pooling.weight"].iter().any(|end| entry.name.ends_with(end));
            let scale = if begins_small { 0.1 } else { 1.0 };
            scale * (6.0 / fan_in).sqrt()
        }
        Form::Vector | Form::Variance => {
            let scale_of_norm = entry.name.ends_with(".norm.weight");
            return vec![if scale_of_norm { 1.0 } else { 0.0 }; entry.len];
        }
    };
    (0..entry.len).map(|_| rng.random_range(-bound..bound)).collect()
}

#[cfg(test)]
mod tests;
