//! A trainer for tests that computes nothing and records its calls.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use training::checkpoint::Files;
use training::{Contents, Contribution, Losses, Memory, Placed, Snapshot, StepTimes};
use weights::Architecture;

use super::*;

/// The recorded calls of a [`Counting`] trainer.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Number of positions in each step.
    pub(crate) positions: Vec<usize>,
    /// Board index of each step.
    pub(crate) boards: Vec<usize>,
    /// Schedule progress set before each step.
    pub(crate) progress: Vec<f64>,
    /// Maximum number of steps that were queued at the same time.
    pub(crate) queued_max: usize,
}

/// A trainer for tests that accepts every batch and never changes the weights.
#[derive(Debug)]
pub(crate) struct Counting {
    log: Arc<Mutex<Log>>,
    /// Number of boards, including added boards.
    boards: usize,
    queued: VecDeque<usize>,
    steps: u64,
    /// Number of steps still to skip.
    skips: usize,
    /// Number of steps after which the device fails; `None` for a device that works.
    lost_after: Option<u64>,
}

impl Counting {
    /// Creates a trainer, and the log of the recorded calls.
    pub(crate) fn new() -> (Self, Arc<Mutex<Log>>) {
        let log = Arc::<Mutex<Log>>::default();
        let (queued, lost_after) = (VecDeque::new(), None);
        (Self { log: Arc::clone(&log), boards: 1, queued, steps: 0, skips: 0, lost_after }, log)
    }

    /// Creates a trainer that skips the first `skips` steps, as after a gradient overflow.
    pub(crate) fn skipping(skips: usize) -> (Self, Arc<Mutex<Log>>) {
        let (trainer, log) = Self::new();
        (Self { skips, ..trainer }, log)
    }

    /// Creates a trainer with a device that takes every step, and fails when the results after `steps` steps are read.
    pub(crate) fn losing(steps: u64) -> Self {
        Self { lost_after: Some(steps), ..Self::new().0 }
    }
}

impl Trainer for Counting {}

impl training::Trainer for Counting {
    fn add_board(&mut self, _: &Architecture) -> Result<usize, Error> {
        self.boards += 1;
        Ok(self.boards - 1)
    }

    fn queue(&mut self, examples: &Examples, _: &mut Laps<'_>) -> Result<(), Error> {
        self.queued.push_back(examples.positions());
        let mut log = self.log.lock().unwrap();
        log.positions.push(examples.positions());
        log.boards.push(examples.board());
        log.queued_max = log.queued_max.max(self.queued.len());
        Ok(())
    }

    fn queue_nothing(&mut self, examples: &Examples, laps: &mut Laps<'_>) -> Result<(), Error> {
        self.queue(examples, laps)
    }

    fn collect(&mut self, _: &mut Laps<'_>) -> Option<Result<Trained, Error>> {
        self.queued.pop_front()?;
        if self.lost_after == Some(self.steps) {
            return Some(Err(Error::DeviceLost("CUDA error: an illegal memory access was encountered".into())));
        }
        if let Some(skips) = self.skips.checked_sub(1) {
            self.skips = skips;
            return Some(Err(Error::Overflow { loss_scale: 65_536.0, step: self.steps + 1 }));
        }
        self.steps += 1;
        Some(Ok(Trained { losses: Losses::ZERO, value_errors: Vec::new(), times: StepTimes::default() }))
    }

    fn memory(&mut self, _: usize, _: usize) -> Memory {
        Memory::default()
    }

    fn contribute(&mut self, examples: &Examples, _: &mut Laps<'_>) -> Result<Contributed, Error> {
        self.log.lock().unwrap().positions.push(examples.positions());
        let (contribution, value_errors) = (self.no_contribution(), Vec::new());
        Ok(Contributed { contribution, value_errors, times: StepTimes::default() })
    }

    fn no_contribution(&self) -> Contribution {
        Contribution::nothing(1, 0)
    }

    fn apply(&mut self, mean: Contributed, _: &mut Laps<'_>) -> Result<Trained, Error> {
        self.steps += 1;
        let Contributed { contribution, value_errors, times } = mean;
        Ok(Trained { losses: contribution.losses(), value_errors, times })
    }

    fn queue_depth(&self) -> usize {
        0
    }

    fn micro_batches(&self) -> usize {
        1
    }

    fn set_progress(&mut self, progress: f64) {
        self.log.lock().unwrap().progress.push(progress);
    }

    fn step_count(&self) -> u64 {
        self.steps
    }

    fn learning_rate(&self) -> f64 {
        0.0
    }

    fn loss_scale(&self) -> Option<f64> {
        None
    }

    fn float32_layers(&self) -> &BTreeMap<String, f64> {
        static NONE: BTreeMap<String, f64> = BTreeMap::new();
        &NONE
    }

    fn keep_gradient(&mut self) {}

    fn take_gradient(&mut self) -> Result<Option<Vec<f32>>, Error> {
        Ok(None)
    }

    fn snapshot(&self, _: Contents) -> Result<Box<dyn Snapshot>, Error> {
        Ok(Box::new(Empty))
    }

    fn load(&mut self, _: &[(String, Vec<u8>)]) -> Result<(), Error> {
        self.queued.clear();
        Ok(())
    }

    fn placement(&self) -> Vec<Placed> {
        Vec::new()
    }
}

/// A snapshot of a trainer without weights.
#[derive(Debug)]
struct Empty;

impl Snapshot for Empty {
    fn published(&self) -> Result<Vec<u8>, Error> {
        Ok(vec![0])
    }

    fn files(&self) -> Result<Files, Error> {
        Ok(vec![("state".to_owned(), vec![0])])
    }
}
