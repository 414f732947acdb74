use std::sync::{Arc, Weak};

use tch::{Device, Kind, Tensor};

use super::latent_network::{LatentCall, LatentNetwork, Layout};
use super::size;
use crate::{Error, evaluator::Staging};

/// Numbers of a row after the observation: the slot to read, the choice, the slot to write.
pub(super) const INDICES: usize = 3;
/// Maximum slots: whole numbers up to here are exact in float32.
const SLOTS_MAX: usize = 1 << 24;

/// Latent states on a device, of learned models of all threads and versions.
#[derive(Debug)]
pub(crate) struct Pool {
    device: Device,
    parts: Vec<Part>,
}

/// States of one layout.
#[derive(Debug)]
struct Part {
    layout: Layout,
    /// `[capacity, N]`. The padding of batches reads and writes the first slot.
    states: Tensor,
    capacity: usize,
    /// Places of models, which hold them.
    places: Vec<Weak<Place>>,
}

/// Successive slots, which one model owns. They are free as soon as the model drops this, without a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(super) layout: Layout,
    pub(super) start: usize,
    pub(super) slots: usize,
}

impl Pool {
    /// Creates an empty pool.
    pub(crate) fn new(device: Device) -> Self {
        Self { device, parts: Vec::new() }
    }

    /// Reserves `slots` slots, at least as many as in `before`, and copies the states from there. Frees memory that
    /// no model uses.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if there is too little memory; all states are kept, unless another process takes the
    /// memory that they leave for a moment. Then every model of the layout has lost the states, and the next batch
    /// fails, which ends the engine.
    pub(crate) fn reserve(&mut self, before: Place, slots: usize) -> Result<Arc<Place>, Error> {
        let _guard = tch::no_grad_guard();
        let (layout, device) = (before.layout, self.device);
        self.parts.iter_mut().for_each(|part| part.places.retain(|place| place.strong_count() > 0));
        self.parts.retain(|part| !part.places.is_empty());
        if !self.parts.iter().any(|part| part.layout == layout) {
            self.parts.push(Part { layout, states: layout.states(1, device)?, capacity: 1, places: Vec::new() });
        }
        let part = self.parts.iter_mut().find(|part| part.layout == layout).expect("the part exists");
        let start = match part.gap(slots) {
            Some(start) => start,
            None => part.grow(slots, device)?,
        };
        let of = |start: usize| part.states.f_narrow(0, size(start), size(before.slots));
        of(start)?.f_copy_(&of(before.start)?)?;
        let place = Arc::new(Place { layout, start, slots });
        part.places.push(Arc::downgrade(&place));
        Ok(place)
    }

    /// Computes a batch of `rows` rows, keeps the states and returns the answers `[rows, …]` on the device. `stage`
    /// writes the rows to host memory: the observation, if the call has any, and [`INDICES`]; all zeros for padding.
    ///
    /// With CUDA this does not wait: host memory must not change until the answers are read.
    pub(crate) fn compute(
        &self,
        network: &LatentNetwork,
        (call, rows): (LatentCall, usize),
        host: &mut Staging,
        stage: &mut dyn FnMut(&mut [f32]),
    ) -> Result<Tensor, Error> {
        let _guard = tch::no_grad_guard();
        let observed = if call == LatentCall::Initial { network.shape.len() } else { 0 };
        let numbers = rows * (observed + INDICES);
        stage(host.numbers(numbers)?);
        // One copy transfers the batch.
        let batch = host.tensor(numbers)?.f_to_device_(self.device, Kind::Float, self.device.is_cuda(), false)?;
        let batch = batch.f_view([size(rows), -1])?;
        let indices = batch.f_narrow(1, size(observed), size(INDICES))?.f_to_kind(Kind::Int64)?;
        let indices = indices.f_transpose(0, 1)?.f_contiguous()?;
        let [from, choices, to] = [0, 1, 2].map(|index| indices.f_select(0, index));
        let part = self.parts.iter().find(|part| part.layout == network.layout);
        let freed = || Error::Libtorch("latent states were freed before the last step".to_owned());
        let mut pool = part.ok_or_else(freed)?.states.shallow_clone();
        let [states, answers] = if call == LatentCall::Initial {
            network.initial(&batch.f_narrow(1, 0, size(observed))?)?
        } else {
            network.step(call, &pool.f_index_select(0, &from?)?, &choices?)?
        };
        let _ = pool.f_index_copy_(0, &to?, &states)?;
        Ok(answers)
    }
}

impl Part {
    /// Returns the first of `slots` successive free slots.
    fn gap(&self, slots: usize) -> Option<usize> {
        let mut places: Vec<Arc<Place>> = self.places.iter().filter_map(Weak::upgrade).collect();
        places.sort_by_key(|place| place.start);
        let starts = [1].into_iter().chain(places.iter().map(|place| place.start + place.slots));
        let ends = places.iter().map(|place| place.start).chain([self.capacity]);
        starts.zip(ends).find(|(start, end)| end - start >= slots).map(|(start, _)| start)
    }

    /// Adds at least `slots` slots, and returns the first of them. The states pass through host memory, so that the
    /// device never holds two pools.
    fn grow(&mut self, slots: usize, device: Device) -> Result<usize, Error> {
        let (start, needed) = (self.capacity, self.capacity + slots);
        if needed > SLOTS_MAX {
            return Err(Error::OutOfMemory { message: format!("{needed} latent states are more than {SLOTS_MAX}") });
        }
        let capacity = (2 * start).clamp(needed, SLOTS_MAX);
        let kept = self.states.f_to_device(Device::Cpu)?;
        self.states = Tensor::new();
        let (states, capacity, result) = match self.layout.states(capacity, device) {
            Ok(states) => (states, capacity, Ok(start)),
            Err(error) => (self.layout.states(start, device)?, start, Err(error)),
        };
        states.f_narrow(0, 0, size(start))?.f_copy_(&kept)?;
        (self.states, self.capacity) = (states, capacity);
        result
    }
}

#[cfg(test)]
mod tests {
    use inference::Precision;

    use super::*;
    use crate::tests::networks::{dense, numbers, residual};

    fn empty(architecture: &weights::Architecture) -> Place {
        Place { layout: Layout::new(architecture, Precision::F32), start: 0, slots: 0 }
    }

    /// Reserves slots and fills them with a number.
    fn filled(pool: &mut Pool, before: Place, slots: usize, with: f64) -> Arc<Place> {
        let place = pool.reserve(before, slots).unwrap();
        let _ = states(pool, &place).fill_(with);
        place
    }

    fn states(pool: &Pool, place: &Place) -> Tensor {
        let part = pool.parts.iter().find(|part| part.layout == place.layout).unwrap();
        part.states.narrow(0, size(place.start), size(place.slots))
    }

    fn hold(pool: &Pool, place: &Place, number: f64) -> bool {
        numbers(&states(pool, place)).iter().all(|held| *held == number)
    }

    #[test]
    fn models_have_slots_of_their_own_and_growth_keeps_all_states() {
        let mut pool = Pool::new(Device::Cpu);
        let places: Vec<_> = (1..9).map(|model| filled(&mut pool, empty(&dense()), model, model as f64)).collect();
        assert!(places.iter().zip(1..).all(|(place, model)| hold(&pool, place, f64::from(model))));
        assert!(places.iter().all(|place| place.start > 0), "the first slot is for padding");
        let grown = pool.reserve(*places[2], 10).unwrap();
        assert!(numbers(&states(&pool, &grown))[..18].iter().all(|held| *held == 3.0), "three states are kept");
        assert!(places.iter().zip(1..).all(|(place, model)| hold(&pool, place, f64::from(model))));
        let used = 1 + (1..9).sum::<usize>() + 10;
        assert!(pool.parts[0].capacity < 2 * used, "{} for {used}", pool.parts[0].capacity);
    }

    #[test]
    fn slots_of_dropped_models_are_used_again_and_the_pool_stays_as_large() {
        let mut pool = Pool::new(Device::Cpu);
        let mut places: Vec<_> = (0..4).map(|_| pool.reserve(empty(&dense()), 7).unwrap()).collect();
        let capacity = pool.parts[0].capacity;
        for model in 0..40 {
            drop(places.remove(model % 3));
            places.push(pool.reserve(empty(&dense()), 7).unwrap());
            assert_eq!((pool.parts[0].places.len(), pool.parts[0].capacity), (4, capacity));
            let mut starts: Vec<usize> = places.iter().map(|place| place.start).collect();
            starts.sort_unstable();
            assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= 7), "{starts:?}");
        }
    }

    #[test]
    fn states_of_another_size_have_another_part_which_is_freed_after_the_last_model() {
        let mut pool = Pool::new(Device::Cpu);
        let [vector, planes] = [dense(), residual()].map(|architecture| empty(&architecture));
        let old = filled(&mut pool, vector, 3, 1.0);
        let new = filled(&mut pool, planes, 3, 2.0);
        assert!(hold(&pool, &old, 1.0) && hold(&pool, &new, 2.0));
        drop(old);
        let _further = pool.reserve(planes, 3).unwrap();
        assert!(pool.parts.len() == 1 && hold(&pool, &new, 2.0));
    }

    #[test]
    fn without_memory_for_more_slots_all_states_are_kept() {
        let mut pool = Pool::new(Device::Cpu);
        let wide = weights::Architecture { channels: 1 << 22, ..dense() };
        let place = filled(&mut pool, empty(&wide), 2, 5.0);
        // 256 TiB, and more than float32 counts.
        for slots in [SLOTS_MAX - 8, SLOTS_MAX] {
            let error = pool.reserve(empty(&wide), slots).unwrap_err();
            assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
            assert!(hold(&pool, &place, 5.0));
        }
        assert!(pool.reserve(empty(&wide), 1).is_ok());
    }
}
