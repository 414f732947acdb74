//! Evaluates batches by replays of graphs: one for each network, board and batch size.
//!
//! A graph reads fixed tensors: an input, and the weights of a [`Frame`]. Copies and replays are queued in one order,
//! so that a batch is computed by the version copied before it, while batches in flight keep the earlier one. For the
//! same reason all batches in flight share a graph: the logits are copied to the host before the next replay.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use tch::{Kind, Tensor};

use crate::{
    Error, dispatcher,
    folded::Folded,
    graph::{Graph, Recorder},
};

use super::{Guarded, Reports};

/// A weights version on the device.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(super) weights: Guarded,
    /// Number of the load, from 1.
    number: u64,
}

/// Graphs of all networks on a device, until one cannot be used.
pub(super) struct Graphs {
    /// `None` if batches are evaluated without graphs.
    recorder: Option<Recorder>,
    frames: Vec<Frame>,
    loads: u64,
    /// Human-readable reason for evaluation without graphs.
    refusal: Arc<OnceLock<String>>,
    reports: Reports,
}

/// Fixed weights of a network for one board, and the graphs that read them.
#[derive(Debug)]
struct Frame {
    weights: Folded,
    /// Number of the version in `weights`.
    resident: u64,
    /// Number of the version of the latest batch.
    latest: u64,
    /// Graphs by batch size; `None` for a size without the memory for a graph.
    graphs: HashMap<usize, Option<Recorded>>,
}

#[derive(Debug)]
struct Recorded {
    graph: Graph,
    /// `[B · H · W · C]`, float32.
    input: Tensor,
}

impl Graphs {
    /// Creates graphs without networks. Without a recorder, the reason is passed on to `refusal`.
    pub(super) fn new(recorder: Result<Recorder, String>, refusal: Arc<OnceLock<String>>, reports: Reports) -> Self {
        let recorder = recorder.map_err(|reason| drop(refusal.set(reason))).ok();
        Self { recorder, frames: Vec::new(), loads: 0, refusal, reports }
    }

    /// Numbers a version.
    pub(super) fn loaded(&mut self, weights: Guarded) -> Loaded {
        self.loads += 1;
        Loaded { weights, number: self.loads }
    }

    /// Submits a batch with observations `[B · H · W · C]` in host memory. Returns the logits `[B, A + 3]` in a tensor
    /// that the next batch overwrites, or `None` if the batch must be evaluated without a graph.
    pub(super) fn replayed(&mut self, loaded: &Loaded, observations: &Tensor, size: usize) -> Option<Tensor> {
        let recorder = self.recorder.as_ref()?;
        // A version that left float16 has no graph: it is rare, and has weights in another format.
        let version = (loaded.weights.unless_wide()?, loaded.number);
        let architecture = version.0.architecture();
        let index = match self.frames.iter().position(|frame| frame.weights.architecture() == architecture) {
            Some(index) => Ok(index),
            None => Frame::of(version).map(|frame| {
                self.frames.push(frame);
                self.frames.len() - 1
            }),
        };
        match index.and_then(|index| self.frames[index].replayed(recorder, version, observations, size)) {
            Ok(logits) => logits,
            Err(error) => {
                self.refuse(error.to_string());
                None
            }
        }
    }

    /// Frees all graphs; from now on batches are evaluated without.
    fn refuse(&mut self, reason: String) {
        (self.recorder, self.frames) = (None, Vec::new());
        self.reports.send(format!("evaluation without CUDA graphs: {reason}"));
        drop(self.refusal.set(reason));
    }
}

impl Frame {
    fn of((weights, number): (&Folded, u64)) -> Result<Self, Error> {
        Ok(Self { weights: weights.copied()?, resident: number, latest: number, graphs: HashMap::new() })
    }

    fn replayed(
        &mut self,
        recorder: &Recorder,
        version: (&Folded, u64),
        observations: &Tensor,
        size: usize,
    ) -> Result<Option<Tensor>, Error> {
        if !self.holds(version)? {
            return Ok(None);
        }
        if let Some(recorded) = self.graphs.get(&size) {
            let Some(Recorded { graph, input }) = recorded else { return Ok(None) };
            dispatcher::copy(input, observations)?;
            graph.replay(&mut || self.computed(input, size))?;
            return Ok(Some(graph.outputs()[0].shallow_clone()));
        }
        let recorded = self.record(recorder, observations, size)?;
        let logits = recorded.as_ref().map(|recorded| recorded.graph.outputs()[0].shallow_clone());
        self.graphs.insert(size, recorded);
        Ok(logits)
    }

    /// Copies the weights of a version into the fixed tensors, unless they are there. Returns false if the batch should
    /// be evaluated without a copy: the versions of two players alternate, and would be copied for every batch.
    fn holds(&mut self, (weights, number): (&Folded, u64)) -> Result<bool, Error> {
        let before = std::mem::replace(&mut self.latest, number);
        if self.resident != number {
            if before != number {
                return Ok(false);
            }
            self.weights.copy_from(weights)?;
            self.resident = number;
        }
        Ok(true)
    }

    /// Records the graph of a batch size and replays it once. Returns `None` without enough memory.
    fn record(&self, recorder: &Recorder, observations: &Tensor, size: usize) -> Result<Option<Recorded>, Error> {
        let recorded = || -> Result<Recorded, Error> {
            let input = observations.f_to_device_(self.weights.device(), Kind::Float, true, true)?;
            let graph = recorder.checked(&mut || self.computed(&input, size))?;
            Ok(Recorded { graph, input })
        };
        match recorded() {
            Err(Error::OutOfMemory { .. }) => Ok(None),
            recorded => recorded.map(Some),
        }
    }

    /// Evaluates a fixed input by the fixed weights.
    fn computed(&self, input: &Tensor, size: usize) -> Result<Vec<Tensor>, Error> {
        Ok(vec![self.weights.forward(input, size)?])
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::Ordering;

    use inference::{Device as _, Precision};
    use tch::Device;
    use weights::{Architecture, WeightsVersion};

    use super::*;
    use crate::{
        Network,
        evaluator::accelerator::{Accelerator, InFlight, OnDevice, Prepared},
        stand_in::{Fault, StandIn},
        tests::networks::{pooled, seasoned, small},
    };

    /// The CPU as a stand-in for an accelerator with graphs.
    struct Trial {
        accelerator: Accelerator,
        stand_in: StandIn,
        refusal: Arc<OnceLock<String>>,
        reports: Arc<Mutex<Vec<String>>>,
    }

    fn stage(numbers: &mut [f32], seed: u16) {
        numbers.iter_mut().enumerate().for_each(|(i, x)| *x = (i as f32 * 0.37 + f32::from(seed)).sin());
    }

    impl Trial {
        fn new(fault: Option<Fault>) -> Self {
            // Several threads could add in another order.
            crate::set_threads(1);
            let stand_in = StandIn { fault, ..StandIn::default() };
            let (refusal, receiver) = (Arc::default(), Reports::default());
            let reports = Arc::<Mutex<Vec<String>>>::default();
            let texts = Arc::clone(&reports);
            receiver.send_to(move |text| texts.lock().unwrap().push(text));
            let graphs = Graphs::new(Ok(Recorder::StandIn(stand_in.clone())), Arc::clone(&refusal), receiver);
            Self { accelerator: Accelerator::new(Device::Cpu, graphs), stand_in, refusal, reports }
        }

        fn load(&mut self, architecture: &Architecture, seed: u64) -> OnDevice {
            self.load_in(Precision::F32, &seasoned(architecture, seed))
        }

        fn load_in(&mut self, precision: Precision, network: &Network) -> OnDevice {
            let format = (Device::Cpu, precision);
            let weights = Guarded::on_host(network, WeightsVersion(1), format, Reports::default()).unwrap();
            self.accelerator.load(Prepared::Evaluator(Box::new(weights))).unwrap()
        }

        fn submit(&mut self, weights: &OnDevice, size: usize, seed: u16) -> InFlight {
            self.accelerator.submit(weights, 0, size, &mut |staged| stage(staged, seed)).unwrap()
        }

        fn logits(&mut self, batch: InFlight) -> Vec<f32> {
            let mut got = Vec::new();
            self.accelerator.wait(batch, &mut |logits| got.extend_from_slice(logits)).unwrap();
            got
        }

        /// Evaluates a batch, and asserts the bits of an evaluation without graphs.
        fn assert_exact(&mut self, weights: &OnDevice, size: usize, seed: u16) {
            let batch = self.submit(weights, size, seed);
            assert_eq!(self.logits(batch), without_graphs(weights, size, seed), "{size} positions");
        }

        /// Returns the numbers of recordings and replays.
        fn counts(&self) -> [usize; 2] {
            let counts = &self.stand_in.counts;
            [&counts.recorded, &counts.replayed].map(|count| count.load(Ordering::Relaxed))
        }
    }

    fn without_graphs(weights: &OnDevice, size: usize, seed: u16) -> Vec<f32> {
        let OnDevice::Evaluator(loaded) = weights else { panic!("weights of an evaluator") };
        let folded = loaded.weights.current();
        let Architecture { planes, height, width, .. } = folded.architecture();
        let mut numbers = vec![0.0; size * planes * height * width];
        stage(&mut numbers, seed);
        Vec::try_from(folded.forward(&Tensor::from_slice(&numbers), size).unwrap().view([-1])).unwrap()
    }

    #[test]
    fn a_graph_for_each_board_and_size_answers_with_the_bits_of_an_evaluation_without_graphs() {
        let mut trial = Trial::new(None);
        let networks = [small(), pooled()[0].clone()].map(|architecture| trial.load(&architecture, 5));
        for seed in 0..3 {
            for (weights, size) in networks.iter().flat_map(|weights| [16, 32].map(|size| (weights, size))) {
                trial.assert_exact(weights, size, seed);
            }
        }
        assert_eq!((trial.counts(), trial.refusal.get()), ([4, 12], None));
    }

    #[test]
    fn a_version_loaded_between_two_submitted_batches_is_seen_by_exactly_the_later_one() {
        let mut trial = Trial::new(None);
        let first = trial.load(&small(), 5);
        let earlier = trial.submit(&first, 16, 1);
        let second = trial.load(&small(), 6);
        // The fixed weights change with the second batch of another version in succession.
        let versions = [&second, &first, &second, &second, &first, &second];
        let later: Vec<InFlight> = (2..).zip(versions).map(|(seed, weights)| trial.submit(weights, 16, seed)).collect();
        assert_eq!(trial.logits(earlier), without_graphs(&first, 16, 1));
        for ((seed, weights), batch) in (2..).zip(versions).zip(later) {
            assert_eq!(trial.logits(batch), without_graphs(weights, 16, seed), "batch {seed}");
        }
        assert_eq!(trial.counts(), [1, 4]);
        assert_ne!(without_graphs(&first, 16, 1), without_graphs(&second, 16, 1));
    }

    #[test]
    fn after_a_refused_capture_or_a_wrong_replay_batches_are_evaluated_without_graphs_for_a_stated_reason() {
        for (fault, reason) in [(Fault::Capture, "stream is capturing"), (Fault::Replay, "a replay differs by")] {
            let mut trial = Trial::new(Some(fault));
            let weights = trial.load(&small(), 5);
            for (size, seed) in [(16, 1), (16, 2), (32, 3)] {
                trial.assert_exact(&weights, size, seed);
            }
            let refusal = trial.refusal.get().expect("graphs are refused");
            assert!(refusal.contains(reason), "{refusal}");
            assert_eq!(*trial.reports.lock().unwrap(), [format!("evaluation without CUDA graphs: {refusal}")]);
        }
    }

    #[test]
    fn a_version_that_left_float16_is_evaluated_without_a_graph_and_the_next_one_by_graphs() {
        let mut trial = Trial::new(None);
        let network = seasoned(&small(), 5);
        let _ = tch::no_grad(|| network.tensor("stem.norm.bias").shallow_clone().fill_(1e5));
        let beyond = trial.load_in(Precision::F16, &network);
        trial.assert_exact(&beyond, 16, 1);
        assert_eq!((trial.counts(), trial.refusal.get()), ([0, 0], None));
        let within = trial.load_in(Precision::F16, &seasoned(&small(), 5));
        trial.assert_exact(&within, 16, 2);
        assert_eq!((trial.counts(), trial.refusal.get()), ([1, 1], None));
    }

    #[test]
    fn a_size_without_the_memory_for_a_graph_is_no_reason_to_give_graphs_up() {
        let mut trial = Trial::new(Some(Fault::Memory));
        let weights = trial.load(&small(), 5);
        for seed in 0..2 {
            trial.assert_exact(&weights, 16, seed);
        }
        assert_eq!((trial.counts(), trial.refusal.get()), ([0, 0], None));
    }

    #[test]
    fn without_a_recorder_the_reason_is_passed_on() {
        let refusal = Arc::default();
        let graphs = Graphs::new(Err("no library".to_owned()), Arc::clone(&refusal), Reports::default());
        assert!(graphs.recorder.is_none());
        assert_eq!(refusal.get().map(String::as_str), Some("no library"));
    }
}
