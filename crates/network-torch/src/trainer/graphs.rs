//! Training steps as graphs of the device, which submit all operations of a step at once.
//!
//! A step is replayed as a graph if the host decides nothing during the step: all tensors of the state are written in
//! place, and a batch is copied over the batch with which the graph was recorded. There is one graph for each [`Key`].
//! Eager are the first steps with a key, a step that keeps the gradient, the check of layers, contributions to a group
//! and steps from the mean of a group, and a batch that is split for want of memory. Graphs are dropped when a tensor
//! or a constant of the step is replaced: by a loaded checkpoint, layers that go back to float32, or the start of the
//! equally weighted average. Start with [`Trainer::by_graph`].

use std::collections::BTreeMap;

use tch::{Device, Tensor};
use training::{Laps, StepTimes};

use super::measured;
use super::staging::{Form, Inputs, Staged};
use super::{Pass, Trainer};
use crate::graph::{Graph, Recorder, accept};
use crate::loss_scale::ScaleOnDevice;
use crate::moments::Moment;
use crate::{Error, Purpose, network, process};

/// Eager steps with a key before one is recorded: kernels are chosen and loaded, and the caches of the allocator are
/// filled.
const WARM_UP: u32 = 5;

/// Keys in use at the same time, each with a graph or in the warm-up. A batch of another size stays eager.
const KEYS_MAX: usize = 16;

/// Values of the host that decide the operations of a step.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    form: Form,
    /// Micro-batches of the batch.
    parts: usize,
}

/// A recorded step, and the batch from which the graph reads.
#[derive(Debug)]
struct Recorded {
    graph: Graph,
    inputs: Inputs,
}

/// A key in use.
#[derive(Debug)]
enum Use {
    /// Eager steps so far.
    WarmUp(u32),
    Graph(Recorded),
}

/// Graphs of a trainer.
#[derive(Debug)]
pub(super) struct Graphs {
    recorder: Option<Recorder>,
    /// Reason why a CUDA device has no graphs.
    refusal: Option<String>,
    keys: BTreeMap<Key, Use>,
}

impl Graphs {
    /// Creates an empty set of graphs. Only CUDA devices have a recorder, or a reason against it.
    pub(super) fn new(device: Device) -> Self {
        #[cfg(any(test, feature = "doubles"))]
        if let Some(recorder) = crate::stand_in::of_process().recorder {
            return Self::recorded_by(Recorder::StandIn(recorder));
        }
        let recorder = device.is_cuda().then(|| Recorder::of(device, Purpose::Training));
        let (recorder, refusal) = match recorder.transpose() {
            Ok(recorder) => (recorder, None),
            Err(refusal) => (None, Some(refusal)),
        };
        Self { recorder, refusal, keys: BTreeMap::new() }
    }

    /// Creates an empty set of graphs of a recorder.
    #[cfg(any(test, feature = "doubles"))]
    pub(super) fn recorded_by(recorder: Recorder) -> Self {
        Self { recorder: Some(recorder), refusal: None, keys: BTreeMap::new() }
    }

    /// Returns the reason why steps stay eager, empty if there are graphs.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref().or_else(|| (self.count() > 0).then_some(""))
    }

    /// Returns the number of graphs.
    pub(super) fn count(&self) -> usize {
        self.keys.values().filter(|used| matches!(used, Use::Graph(_))).count()
    }

    /// Drops all graphs, and lets all later steps be eager.
    pub(super) fn refuse(&mut self, reason: &str) {
        self.clear();
        if self.recorder.take().is_some() {
            self.refusal = Some(reason.to_owned());
        }
    }

    /// Gives the memory of the graphs back after `message`, an error of an eager step. Returns false if there are no
    /// graphs.
    pub(super) fn release(&mut self, message: &str) -> bool {
        let has_graphs = self.count() > 0;
        if has_graphs {
            self.refuse(&format!("too little memory for graphs next to eager steps: {message}"));
        }
        has_graphs
    }

    /// Drops all graphs; the warm-up starts again.
    pub(super) fn clear(&mut self) {
        self.keys.clear();
    }

    fn recorded(&self, key: &Key) -> Option<&Recorded> {
        match self.keys.get(key) {
            Some(Use::Graph(recorded)) => Some(recorded),
            _ => None,
        }
    }

    /// Counts a step without graph; returns whether the step is to be recorded.
    fn is_due(&mut self, key: &Key) -> bool {
        if self.recorder.is_none() {
            return false;
        }
        if !self.keys.contains_key(key) && self.keys.len() >= KEYS_MAX {
            // Sizes that come once make room for a size that comes again.
            self.keys.retain(|_, used| matches!(used, Use::Graph(_)));
            if self.keys.len() >= KEYS_MAX {
                return false;
            }
        }
        match self.keys.entry(key.clone()).or_insert(Use::WarmUp(0)) {
            Use::WarmUp(steps) if *steps < WARM_UP => {
                *steps += 1;
                false
            }
            _ => true,
        }
    }
}

/// Result of a step that was to be recorded.
enum Verdict {
    Accepted(Graph),
    Refused(String),
    /// The step was not applied, so that it shows too little.
    Later,
}

impl Trainer {
    /// Takes the step of a batch by a graph. Returns the numbers of [`measured::joined`], which the next step
    /// overwrites; `None` if the step is to be eager. Nothing has changed then.
    pub(super) fn by_graph(&mut self, inputs: &Inputs, laps: &mut Laps<'_>) -> Option<(Tensor, StepTimes)> {
        if self.keeps_gradient {
            return None;
        }
        let Form { board, positions, .. } = inputs.form;
        let parts = positions.div_ceil(self.pass_positions(board, positions));
        let key = Key { form: inputs.form.clone(), parts };
        let stepped = if let Some(recorded) = self.graphs.recorded(&key) {
            self.replay(recorded, inputs, parts, laps)
        } else if self.graphs.is_due(&key) {
            self.record(key, inputs, laps)
        } else {
            return None;
        };
        match stepped {
            Ok(stepped) => {
                self.micro_batches = parts;
                Some(stepped)
            }
            // The eager step fails as well if the device is lost.
            Err(error) => {
                self.graphs.refuse(&error.to_string());
                None
            }
        }
    }

    fn replay(
        &self,
        Recorded { graph, inputs: fixed }: &Recorded,
        inputs: &Inputs,
        parts: usize,
        laps: &mut Laps<'_>,
    ) -> Result<(Tensor, StepTimes), Error> {
        inputs.copy_to(fixed)?;
        let stage = laps.lap();
        graph.replay(&mut || self.all_operations(fixed, parts))?;
        let times = StepTimes { stage, forward: laps.lap(), ..StepTimes::default() };
        Ok((graph.outputs()[0].shallow_clone(), times))
    }

    /// Takes a step eagerly and records it. A graph that is not accepted ends the use of graphs.
    fn record(&mut self, key: Key, inputs: &Inputs, laps: &mut Laps<'_>) -> Result<(Tensor, StepTimes), Error> {
        let (state, inputs) = (self.state(), inputs.shallow_clone());
        let stage = laps.lap();
        let before = copies(&state)?;
        let (numbers, verdict) = match self.compared(&inputs, key.parts, &state, &before) {
            Ok(compared) => compared,
            Err(error) => {
                write(&state, &before)?;
                return Err(error);
            }
        };
        match verdict {
            Verdict::Accepted(graph) => drop(self.graphs.keys.insert(key, Use::Graph(Recorded { graph, inputs }))),
            Verdict::Refused(reason) => self.graphs.refuse(&reason),
            Verdict::Later => {}
        }
        Ok((numbers, StepTimes { stage, forward: laps.lap(), ..StepTimes::default() }))
    }

    /// Takes a step from the state `before` twice eagerly and once by a graph. Leaves the state after the replay or, if
    /// that is refused, after the first step.
    fn compared(
        &self,
        inputs: &Inputs,
        parts: usize,
        state: &[Tensor],
        before: &[Tensor],
    ) -> Result<(Tensor, Verdict), Error> {
        let recorder = self.graphs.recorder.as_ref().expect("only a step with a recorder is recorded");
        let mut step = || self.all_operations(inputs, parts);
        let results =
            |outputs: &[Tensor]| -> Vec<Tensor> { state.iter().chain(outputs).map(Tensor::shallow_clone).collect() };
        let first = copies(&results(&recorder.warmed(&mut step)?))?;
        let numbers = first[state.len()].shallow_clone();
        if network::download(&self.last_applied)? == [0.0] {
            return Ok((numbers, Verdict::Later));
        }
        write(state, before)?;
        let second = copies(&results(&recorder.warmed(&mut step)?))?;
        write(state, before)?;
        let graph = {
            let _alone = process::exclude_from_device();
            recorder.record(&mut step)?
        };
        // A stand-in has computed the step.
        write(state, before)?;
        graph.replay(&mut step)?;
        let replayed = results(graph.outputs());
        match accept(&first, &second, &replayed) {
            Ok(()) => Ok((graph.outputs()[0].shallow_clone(), Verdict::Accepted(graph))),
            Err(reason) => {
                write(state, &first)?;
                Ok((numbers, Verdict::Refused(reason)))
            }
        }
    }

    /// Submits all operations of a step in `parts` micro-batches. Returns the numbers of [`measured::joined`] alone.
    fn all_operations(&self, inputs: &Inputs, parts: usize) -> Result<Vec<Tensor>, Error> {
        let staged = Staged::of(inputs, &self.network, &self.boards)?;
        let statistics = self.prepare()?;
        let pass = self.micro_batches_of(&staged, parts, &mut Laps::none(), &mut StepTimes::default());
        let Pass { losses, gradient } = pass.inspect_err(|_| {
            // The first error is the reason for a second one.
            let _ = self.restore_statistics(&statistics);
        })?;
        let _guard = tch::no_grad_guard();
        let scalars = self.scalars(&losses.scalars, &gradient)?;
        self.update(gradient, &scalars, &staged.learning_rates, &statistics)?;
        Ok(vec![measured::joined(&scalars, losses.value_errors.as_ref())?])
    }

    /// Returns the tensors that a step reads and writes.
    fn state(&self) -> Vec<Tensor> {
        let fixed = [
            &self.network.flat_parameters,
            &self.network.flat_statistics,
            &self.average_parameters,
            &self.average_statistics,
            &self.next_step,
            &self.last_applied,
        ];
        let moments = self.moments.iter().flat_map(Moment::tensors);
        let scale = self.loss_scale.iter().flat_map(ScaleOnDevice::tensors);
        fixed.into_iter().chain(moments).chain(scale).map(Tensor::shallow_clone).collect()
    }
}

fn copies(tensors: &[Tensor]) -> Result<Vec<Tensor>, Error> {
    let _guard = tch::no_grad_guard();
    tensors.iter().map(|tensor| Ok(tensor.f_detach_copy()?)).collect()
}

/// Writes the numbers of each tensor to the tensor at the same place; further tensors are ignored.
fn write(to: &[Tensor], from: &[Tensor]) -> Result<(), Error> {
    let _guard = tch::no_grad_guard();
    to.iter().zip(from).try_for_each(|(to, from)| Ok(to.shallow_clone().f_copy_(from)?))
}
