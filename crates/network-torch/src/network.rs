use network::{Layer, Reader, Role};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tch::{Device, Kind, Tensor};
use weights::Architecture;

use crate::{
    DeviceRules, Error, Precision,
    layout::{self, Entry, Layout},
    model_layers::ModelLayers,
};

/// The parameters and running statistics of the network that [`Layers`](network::Layers) or, for MuZero,
/// [`LatentLayers`](network::LatentLayers) declares, in two flat buffers.
///
/// All numbers are float32; evaluation and training in a lower precision cast them as needed.
#[derive(Debug)]
pub struct Network {
    architecture: Architecture,
    pub(crate) layers: ModelLayers,
    pub(crate) layout: Layout,
    /// All trained parameters, `[P]`; the optimiser works on it, `parameters` are views of it.
    pub(crate) flat_parameters: Tensor,
    /// All running means and variances, `[S]`; training writes to it through `statistics`.
    pub(crate) flat_statistics: Tensor,
    /// The trained parameters in the order of the layout, each a view with its public shape.
    pub(crate) parameters: Vec<Tensor>,
    statistics: Vec<Tensor>,
    /// What the device takes; the flat buffers have the same order on every device.
    pub(crate) rules: DeviceRules,
}

impl Network {
    /// Creates a new network: weights uniform within `√(6 / fan-in)` (He et al. 2015), the outputs of the heads a
    /// tenth of it so that play begins undecided, those of global pooling and squeeze-and-excitation likewise so that
    /// training begins near the plain tower. The matrices that map one-hot actions and chance codes to planes are
    /// uniform within 1, because one of its inputs is not 0. The seed alone decides every number.
    ///
    /// # Errors
    /// [`Error::Network`] names the dimension that is out of range.
    pub fn new(architecture: &Architecture, device: Device, seed: u64) -> Result<Self, Error> {
        Self::initial(architecture, ModelLayers::new(architecture)?, device, seed)
    }

    /// Creates a new MuZero network as [`new`](Self::new) does, with the same numbers, and the heads of the consistency
    /// loss, which only training needs ([`ConsistencyLayers`](network::ConsistencyLayers)).
    ///
    /// # Errors
    /// [`Error::Network`] names the dimension that is out of range, or the model.
    pub fn with_consistency(architecture: &Architecture, device: Device, seed: u64) -> Result<Self, Error> {
        Self::initial(architecture, ModelLayers::with_consistency(architecture)?, device, seed)
    }

    fn initial(architecture: &Architecture, layers: ModelLayers, device: Device, seed: u64) -> Result<Self, Error> {
        let layout = layers.layout();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let parameters: Vec<f32> =
            layout.parameters.iter().flat_map(|entry| initial_parameters(entry, &mut rng)).collect();
        let statistics: Vec<f32> = layout
            .statistics
            .iter()
            .flat_map(|entry| {
                std::iter::repeat_n(if entry.tensor.role == Role::NormVariance { 1.0 } else { 0.0 }, entry.len)
            })
            .collect();
        Self::from_flat(architecture, layers, upload(&parameters, device)?, upload(&statistics, device)?)
    }

    /// Reads a file that [`to_safetensors`](Self::to_safetensors) wrote.
    ///
    /// # Errors
    /// Fails unless the file holds exactly the tensors of `architecture`, finite and of the right shape; the error
    /// names the tensor.
    pub fn from_safetensors(architecture: &Architecture, bytes: &[u8], device: Device) -> Result<Self, Error> {
        Self::read(architecture, ModelLayers::new(architecture)?, bytes, device)
    }

    /// Reads a file with the tensors of the same layers, those of training included.
    ///
    /// # Errors
    /// Those of [`from_safetensors`](Self::from_safetensors).
    pub(crate) fn another(&self, bytes: &[u8]) -> Result<Self, Error> {
        Self::read(&self.architecture, self.layers.clone(), bytes, self.device())
    }

    fn read(architecture: &Architecture, layers: ModelLayers, bytes: &[u8], device: Device) -> Result<Self, Error> {
        let layout = layers.layout();
        let mut reader = Reader::new(bytes)?;
        let parameters = layout::flat(&mut reader, "", &layout.parameters)?;
        let statistics = layout::flat(&mut reader, "", &layout.statistics)?;
        reader.finish()?;
        Self::from_flat(architecture, layers, upload(&parameters, device)?, upload(&statistics, device)?)
    }

    /// Writes every tensor that evaluators need by name as float32, convolutions as `[out, in, height, width]`. Equal
    /// networks give equal bytes.
    ///
    /// # Errors
    /// [`Error::Libtorch`] if the device cannot be read.
    pub fn to_safetensors(&self) -> Result<Vec<u8>, Error> {
        write(&self.layout.published(), &self.flat_parameters, &self.flat_statistics)
    }

    /// Its architecture.
    #[must_use]
    pub fn architecture(&self) -> &Architecture {
        &self.architecture
    }

    /// The number of trained parameters that evaluators need; running statistics do not count.
    #[must_use]
    pub fn parameter_count(&self) -> usize {
        self.layers.parameters()
    }

    /// The device that holds it.
    #[must_use]
    pub fn device(&self) -> Device {
        self.flat_parameters.device()
    }

    /// A network over two flat buffers in the order of their layout.
    pub(crate) fn from_flat(
        architecture: &Architecture,
        layers: ModelLayers,
        flat_parameters: Tensor,
        flat_statistics: Tensor,
    ) -> Result<Self, Error> {
        let layout = layers.layout();
        let parameters = views(&flat_parameters, &layout.parameters)?;
        for parameter in &parameters {
            let _ = parameter.f_set_requires_grad(true)?;
        }
        let statistics = views(&flat_statistics, &layout.statistics)?;
        Ok(Self {
            architecture: architecture.clone(),
            layers,
            layout,
            rules: DeviceRules::of(flat_parameters.device()),
            flat_parameters,
            flat_statistics,
            parameters,
            statistics,
        })
    }

    /// Copies weights and biases to `kind` in one operation, for passes in that kind. Parameters of norms and running
    /// statistics are shared with this network; gradients are those of the copies.
    pub(crate) fn cast(&self, kind: Kind) -> Result<Self, Error> {
        let flat = self.flat_parameters.f_to_kind(kind)?;
        let mut cast =
            Self::from_flat(&self.architecture, self.layers.clone(), flat, self.flat_statistics.shallow_clone())?;
        cast.rules = self.rules;
        for ((entry, copy), own) in self.layout.parameters.iter().zip(&mut cast.parameters).zip(&self.parameters) {
            if matches!(entry.tensor.role, Role::NormScale | Role::NormShift) {
                *copy = own.shallow_clone();
            }
        }
        Ok(cast)
    }

    /// Copies the network as it is now, weights and biases in `kind`, norms and statistics in float32.
    pub(crate) fn copy(&self, kind: Kind) -> Result<Self, Error> {
        let _guard = tch::no_grad_guard();
        let (parameters, statistics) = (self.flat_parameters.f_detach_copy()?, self.flat_statistics.f_detach_copy()?);
        let copy = Self::from_flat(&self.architecture, self.layers.clone(), parameters, statistics)?;
        copy.cast(kind)
    }

    /// A copy of the network with its weights in `precision`, if that is not float32.
    pub(crate) fn lowered(&self, precision: Precision) -> Result<Option<Self>, Error> {
        match precision {
            Precision::F32 => Ok(None),
            Precision::Bf16 => self.cast(precision.kind()).map(Some),
        }
    }

    /// Copies the weights and biases of `original` again to this network, which [`cast`](Self::cast) made of it.
    pub(crate) fn cast_again(&self, original: &Self) -> Result<(), Error> {
        let _guard = tch::no_grad_guard();
        Ok(self.flat_parameters.shallow_clone().f_copy_(&original.flat_parameters)?)
    }

    /// The same network on a device that takes what `rules` state, for tests without such a device.
    #[cfg(test)]
    pub(crate) fn with_rules(self, rules: DeviceRules) -> Self {
        Self { rules, ..self }
    }

    /// The tensor of a layer.
    pub(crate) fn of(&self, layer: &Layer, role: Role) -> &Tensor {
        self.tensor(&layer.tensor_name(role))
    }

    /// The parameter or running statistic called `name`.
    pub(crate) fn tensor(&self, name: &str) -> &Tensor {
        let Layout { parameters, statistics } = &self.layout;
        let mut tensors = parameters.iter().zip(&self.parameters).chain(statistics.iter().zip(&self.statistics));
        tensors.find(|(entry, _)| entry.tensor.name == name).expect("names come from the layers of the network").1
    }
}

/// A safetensors file of the tensors of a layout, in two flat buffers.
pub(crate) fn write(layout: &Layout, parameters: &Tensor, statistics: &Tensor) -> Result<Vec<u8>, Error> {
    let (parameters, statistics) = (download(parameters)?, download(statistics)?);
    let entries = layout::file_entries("", &layout.parameters, &parameters);
    Ok(::network::write(entries.chain(layout::file_entries("", &layout.statistics, &statistics)))?)
}

/// `values` as a tensor `[n]` on `device`.
pub(crate) fn upload(values: &[f32], device: Device) -> Result<Tensor, Error> {
    Ok(Tensor::f_from_slice(values)?.f_to_device(device)?)
}

/// Copies the numbers of a tensor, as float32 in row-major order.
pub(crate) fn download(tensor: &Tensor) -> Result<Vec<f32>, Error> {
    let mut values = vec![0.0; tensor.numel()];
    read(tensor, &mut values)?;
    Ok(values)
}

/// Copies the numbers of a tensor into `values`, which has the same length.
pub(crate) fn read(tensor: &Tensor, values: &mut [f32]) -> Result<(), Error> {
    let numel = values.len();
    Ok(tensor.f_detach()?.f_to_device(Device::Cpu)?.f_to_kind(Kind::Float)?.f_copy_data(values, numel)?)
}

/// Joins the gradients of `entries` into one tensor, in the order of the flat buffer.
pub(crate) fn flatten(entries: &[Entry], gradients: &[Tensor]) -> Result<Tensor, Error> {
    let in_order = entries.iter().zip(gradients).map(|(entry, gradient)| in_order(entry, gradient));
    Ok(Tensor::f_cat(&in_order.collect::<Result<Vec<_>, _>>()?, 0)?)
}

/// The gradient of an entry, `[len]`, in the order of the flat buffer.
pub(crate) fn in_order(entry: &Entry, gradient: &Tensor) -> Result<Tensor, Error> {
    let gradient = match entry.tensor.role {
        Role::Convolution => gradient.f_permute([0, 2, 3, 1])?,
        _ => gradient.shallow_clone(),
    };
    Ok(gradient.f_reshape([-1])?)
}

/// Returns leaves of the autograd graph that share their memory with `flat`.
fn views(flat: &Tensor, entries: &[Entry]) -> Result<Vec<Tensor>, Error> {
    let size = |n: usize| i64::try_from(n).expect("dimensions were checked");
    let view = |entry: &Entry| -> Result<Tensor, Error> {
        let slice = flat.f_narrow(0, size(entry.offset), size(entry.len))?;
        let shape: Vec<i64> = entry.tensor.shape.iter().map(|&n| size(n)).collect();
        let shaped = match (entry.tensor.role, shape.as_slice()) {
            (Role::Convolution, &[outputs, inputs, height, width]) => {
                slice.f_view([outputs, height, width, inputs])?.f_permute([0, 3, 1, 2])?
            }
            (_, shape) => slice.f_view(shape)?,
        };
        Ok(shaped.f_detach()?)
    };
    entries.iter().map(view).collect()
}

/// The last matrix of the encoder of chance, whose differences name codes from the beginning.
const ENCODING: &str = "encoding.output.weight";
/// The matrices from one-hot actions or chance codes to planes.
const ACTION_PLANES: [&str; 2] = ["dynamics.action.weight", "afterstate.action.weight"];

fn initial_parameters(entry: &Entry, rng: &mut ChaCha8Rng) -> Vec<f32> {
    let bound = match entry.tensor.role {
        Role::Convolution | Role::Linear => {
            let fan_in = entry.len as f32 / entry.tensor.shape[0] as f32;
            let name = &entry.tensor.name;
            let begins_small =
                name != ENCODING && [".output.weight", ".pooling.weight"].iter().any(|end| name.ends_with(end));
            let scale = if begins_small { 0.1 } else { 1.0 };
            if ACTION_PLANES.contains(&entry.tensor.name.as_str()) { 1.0 } else { scale * (6.0 / fan_in).sqrt() }
        }
        Role::NormScale => return vec![1.0; entry.len],
        _ => return vec![0.0; entry.len],
    };
    (0..entry.len).map(|_| rng.random_range(-bound..bound)).collect()
}

#[cfg(test)]
mod tests;
