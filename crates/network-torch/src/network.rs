use std::collections::{BTreeMap, BTreeSet};

use network::{Layer, Role};
use tch::{Device, Kind, Tensor};
use training::layout::ALIGNMENT;
use training::{Entry, Layout, ModelLayers, Numbers, Precision, TrainerSettings, checkpoint};
use weights::Architecture;

use crate::{DeviceRules, Error, layers::size, rules};

/// Parameters and running statistics of the network declared by [`Layers`](network::Layers) or, for MuZero, by
/// [`LatentLayers`](network::LatentLayers), in two flat buffers.
///
/// All numbers are float32; evaluation and training in a lower precision cast them as needed.
#[derive(Debug)]
pub struct Network {
    architecture: Architecture,
    pub(crate) layers: ModelLayers,
    pub(crate) layout: Layout,
    /// All trained parameters, `[P]`; the optimiser works on the buffer, and `parameters` are views of it.
    pub(crate) flat_parameters: Tensor,
    /// All running means and variances, `[S]`; training writes to the buffer through `statistics`.
    pub(crate) flat_statistics: Tensor,
    /// Trained parameters in layout order, each a view with the public shape.
    pub(crate) parameters: Vec<Tensor>,
    statistics: Vec<Tensor>,
    /// Limits of the device; the flat buffers have the same order on every device.
    pub(crate) rules: DeviceRules,
    /// Layers that multiply in float32 while all other layers use a lower precision.
    float32_layers: BTreeSet<String>,
    /// In a network under a layer check: low-precision copies of weights for parallel products, by weight name.
    shadows: BTreeMap<String, Tensor>,
}

impl Network {
    /// Creates a new network with the numbers of [`Numbers::initial`]: the seed alone decides every number.
    ///
    /// # Errors
    /// [`Error::Training`] names the dimension that is out of range.
    pub fn new(architecture: &Architecture, device: Device, seed: u64) -> Result<Self, Error> {
        Self::initial(architecture, ModelLayers::new(architecture)?, device, seed)
    }

    /// Creates a new MuZero network like [`new`](Self::new), with the same numbers, plus the heads of the consistency
    /// loss, which only training needs ([`ConsistencyLayers`](network::ConsistencyLayers)).
    ///
    /// # Errors
    /// [`Error::Training`] names the dimension that is out of range, or the model.
    pub fn with_consistency(architecture: &Architecture, device: Device, seed: u64) -> Result<Self, Error> {
        Self::initial(architecture, ModelLayers::with_consistency(architecture)?, device, seed)
    }

    /// Creates the new network that `settings` train, with consistency heads if the consistency loss has a weight.
    ///
    /// # Errors
    /// [`Error::Training`] names the dimension that is out of range, or the model, since AlphaZero has no consistency
    /// loss.
    pub fn to_train(
        architecture: &Architecture,
        settings: &TrainerSettings,
        device: Device,
        seed: u64,
    ) -> Result<Self, Error> {
        Self::initial(architecture, settings.layers(architecture)?, device, seed)
    }

    fn initial(architecture: &Architecture, layers: ModelLayers, device: Device, seed: u64) -> Result<Self, Error> {
        Self::from_numbers(architecture, &Numbers::initial(&layers.layout(), seed), layers, device)
    }

    /// Reads a file that [`to_safetensors`](Self::to_safetensors) wrote.
    ///
    /// # Errors
    /// Fails unless the file holds exactly the tensors of `architecture`, finite and of the right shape; the error
    /// names the tensor.
    pub fn from_safetensors(architecture: &Architecture, bytes: &[u8], device: Device) -> Result<Self, Error> {
        Self::read(architecture, ModelLayers::new(architecture)?, bytes, device)
    }

    fn read(architecture: &Architecture, layers: ModelLayers, bytes: &[u8], device: Device) -> Result<Self, Error> {
        Self::from_numbers(architecture, &checkpoint::read(&layers.layout(), bytes)?, layers, device)
    }

    /// Creates a network with these numbers, in the layout order of `layers`.
    pub(crate) fn from_numbers(
        architecture: &Architecture,
        numbers: &Numbers,
        layers: ModelLayers,
        device: Device,
    ) -> Result<Self, Error> {
        let Numbers { parameters, statistics } = numbers;
        Self::from_flat(architecture, layers, upload(parameters, device)?, upload(statistics, device)?)
    }

    /// Serialises every tensor that evaluators need, by name and as float32, convolutions as
    /// `[out, in, height, width]`. Equal networks give equal bytes.
    ///
    /// # Errors
    /// [`Error::Libtorch`] if the device cannot be read.
    pub fn to_safetensors(&self) -> Result<Vec<u8>, Error> {
        let (parameters, statistics) = (download(&self.flat_parameters)?, download(&self.flat_statistics)?);
        Ok(checkpoint::write(&self.layout.published(), &parameters, &statistics)?)
    }

    /// Returns the architecture.
    #[must_use]
    pub fn architecture(&self) -> &Architecture {
        &self.architecture
    }

    /// Returns the number of trained parameters that evaluators need, without running statistics.
    #[cfg(test)]
    pub(crate) fn parameter_count(&self) -> usize {
        self.layers.parameters()
    }

    /// Returns the device that holds the network.
    #[must_use]
    pub fn device(&self) -> Device {
        self.flat_parameters.device()
    }

    /// Creates a network over two flat buffers in layout order.
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
            float32_layers: BTreeSet::new(),
            shadows: BTreeMap::new(),
        })
    }

    /// Copies weights and biases to `kind` in one operation, for passes in that kind. Norm parameters and running
    /// statistics are shared with this network, and so are all parameters of `float32_layers`; gradients belong to
    /// the copies.
    pub(crate) fn cast(&self, kind: Kind, float32_layers: BTreeSet<String>) -> Result<Self, Error> {
        let flat = self.flat_parameters.f_to_kind(kind)?;
        let mut cast =
            Self::from_flat(&self.architecture, self.layers.clone(), flat, self.flat_statistics.shallow_clone())?;
        cast.rules = self.rules;
        for ((entry, copy), own) in self.layout.parameters.iter().zip(&mut cast.parameters).zip(&self.parameters) {
            let is_of_norm = matches!(entry.tensor.role, Role::NormScale | Role::NormShift);
            if is_of_norm || float32_layers.contains(entry.tensor.layer()) {
                *copy = own.shallow_clone();
            }
        }
        cast.float32_layers = float32_layers;
        Ok(cast)
    }

    /// Moves the network to `device`.
    pub(crate) fn moved_to(self, device: Device) -> Result<Self, Error> {
        let _guard = tch::no_grad_guard();
        let [parameters, statistics] =
            [&self.flat_parameters, &self.flat_statistics].map(|flat| flat.f_to_device(device));
        Self::from_flat(&self.architecture, self.layers, parameters?, statistics?)
    }

    /// Copies the current network, with weights and biases in `kind`, norms and statistics in float32.
    pub(crate) fn copy(&self, kind: Kind) -> Result<Self, Error> {
        let _guard = tch::no_grad_guard();
        let (parameters, statistics) = (self.flat_parameters.f_detach_copy()?, self.flat_statistics.f_detach_copy()?);
        let copy = Self::from_flat(&self.architecture, self.layers.clone(), parameters, statistics)?;
        copy.cast(kind, BTreeSet::new())
    }

    /// Copies the network with weights in `precision`, except in `float32_layers`; `None` if the precision is
    /// float32.
    pub(crate) fn lowered(
        &self,
        precision: Precision,
        float32_layers: BTreeSet<String>,
    ) -> Result<Option<Self>, Error> {
        match precision {
            Precision::F32 => Ok(None),
            Precision::Bf16 | Precision::F16 => self.cast(rules::kind(precision), float32_layers).map(Some),
        }
    }

    /// Returns the same network, with the same parameters, and parallel products with the weights of `lowered`.
    pub(crate) fn shadowed(&self, lowered: &Self) -> Result<Self, Error> {
        let (parameters, statistics) = (self.flat_parameters.shallow_clone(), self.flat_statistics.shallow_clone());
        let mut network = Self::from_flat(&self.architecture, self.layers.clone(), parameters, statistics)?;
        network.rules = self.rules;
        for (entry, low) in lowered.layout.parameters.iter().zip(&lowered.parameters) {
            let is_lowered = !lowered.float32_layers.contains(entry.tensor.layer());
            if is_lowered && entry.tensor.role.is_weight() {
                network.shadows.insert(entry.tensor.name.clone(), low.shallow_clone());
            }
        }
        Ok(network)
    }

    /// Iterates over the weights with a shadow in a lower precision: the layer, the weight and the shadow.
    pub(crate) fn shadow_pairs(&self) -> impl Iterator<Item = (&str, [&Tensor; 2])> {
        let parameters = self.layout.parameters.iter().zip(&self.parameters);
        parameters.filter_map(|(entry, own)| {
            self.shadows.get(&entry.tensor.name).map(|shadow| (entry.tensor.layer(), [own, shadow]))
        })
    }

    /// Returns the low-precision shadow of a layer's weight, if it has one.
    pub(crate) fn shadow(&self, layer: &Layer, role: Role) -> Option<&Tensor> {
        // Names are built for checks alone.
        if self.shadows.is_empty() { None } else { self.shadows.get(&layer.tensor_name(role)) }
    }

    /// Returns the kind of a layer's products in passes in `kind`.
    pub(crate) fn product_kind(&self, layer: &Layer, kind: Kind) -> Kind {
        if self.float32_layers.contains(&layer.name) { Kind::Float } else { kind }
    }

    /// Returns the kind of activations between products in passes in `kind`: float32 as soon as one layer multiplies
    /// in float32, since a layer with rounded inputs has lost the precision.
    pub(crate) fn activation_kind(&self, kind: Kind) -> Kind {
        if self.float32_layers.is_empty() { kind } else { Kind::Float }
    }

    /// Copies the weights and biases of `original` again to this network, which [`cast`](Self::cast) made from it.
    pub(crate) fn cast_again(&self, original: &Self) -> Result<(), Error> {
        let _guard = tch::no_grad_guard();
        Ok(self.flat_parameters.shallow_clone().f_copy_(&original.flat_parameters)?)
    }

    /// Returns the same network on a device with these `rules`, for tests without such a device.
    #[cfg(test)]
    pub(crate) fn with_rules(self, rules: DeviceRules) -> Self {
        Self { rules, ..self }
    }

    /// Returns a tensor of a layer.
    pub(crate) fn of(&self, layer: &Layer, role: Role) -> &Tensor {
        self.tensor(&layer.tensor_name(role))
    }

    /// Returns the parameter or running statistic called `name`.
    pub(crate) fn tensor(&self, name: &str) -> &Tensor {
        let Layout { parameters, statistics } = &self.layout;
        let mut tensors = parameters.iter().zip(&self.parameters).chain(statistics.iter().zip(&self.statistics));
        tensors.find(|(entry, _)| entry.tensor.name == name).expect("names come from the layers of the network").1
    }
}

/// Copies `values` to a tensor `[n]` on `device`.
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

/// Joins the gradients of `entries` into one tensor, in the order of the flat buffer, with zeros between them.
pub(crate) fn flatten(entries: &[Entry], gradients: &[Tensor]) -> Result<Tensor, Error> {
    let zeros = Tensor::f_zeros([size(ALIGNMENT)], (gradients[0].f_kind()?, gradients[0].device()))?;
    let mut parts = Vec::with_capacity(2 * entries.len());
    for (entry, gradient) in entries.iter().zip(gradients) {
        parts.push(in_order(entry, gradient)?);
        if entry.padding() > 0 {
            parts.push(zeros.f_narrow(0, 0, size(entry.padding()))?);
        }
    }
    Ok(Tensor::f_cat(&parts, 0)?)
}

/// Returns the gradient of an entry, `[len]`, in the order of the flat buffer.
pub(crate) fn in_order(entry: &Entry, gradient: &Tensor) -> Result<Tensor, Error> {
    let gradient = match entry.tensor.role {
        Role::Convolution => gradient.f_permute([0, 2, 3, 1])?,
        _ => gradient.shallow_clone(),
    };
    Ok(gradient.f_reshape([-1])?)
}

/// Returns autograd leaves that share memory with `flat`, each at a multiple of 16 bytes.
fn views(flat: &Tensor, entries: &[Entry]) -> Result<Vec<Tensor>, Error> {
    let view = |entry: &Entry| -> Result<Tensor, Error> {
        debug_assert!(entry.offset.is_multiple_of(ALIGNMENT), "{} is not aligned", entry.tensor.name);
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

#[cfg(test)]
mod tests;
