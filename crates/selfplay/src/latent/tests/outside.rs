//! Tests episodes in environments outside this process: observations are recorded, and lost episodes are dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use experience::{Element, ObservationLayout};
use game::{
    Environments, EnvironmentsError, Frame, Losses, Play, Player, Recording, RulesEnvironments, Spec, Start, Started,
    Taken,
};

use super::*;

/// A chain environment with observations of two byte frames, which fails some requests.
struct Outside {
    inner: RulesEnvironments<Chain>,
    spec: Spec,
    /// The last two frames of each environment, the oldest first.
    frames: Vec<[[u8; 2]; 2]>,
    /// The failure period: every request with a number divisible by this value fails.
    failing: usize,
    requests: usize,
    losses: Losses,
    /// The number of calls until a failure: the call that reaches 0 fails.
    calls_left: usize,
    /// The number of requests for pictures by environment. Only the first has a picture, which shows the latest frame.
    drawn: Arc<[AtomicUsize]>,
}

impl Outside {
    fn new(chain: Chain, len: usize, failing: usize) -> Self {
        let spec = chain.spec().clone();
        let observation = game::ObservationShape { planes: 2 * spec.observation.planes, ..spec.observation };
        let spec = Spec { observation, recording: Some(Recording { stack: 2 }), ..spec };
        let inner = RulesEnvironments::new(chain, len);
        let (frames, losses) = (vec![[[0; 2]; 2]; len], Losses::default());
        let drawn = (0..len).map(|_| AtomicUsize::new(0)).collect();
        Self { inner, spec, frames, failing, requests: 0, losses, calls_left: usize::MAX, drawn }
    }

    fn fails(&mut self) -> bool {
        self.requests += 1;
        self.requests.is_multiple_of(self.failing)
    }

    fn frame_of(&self, environment: usize) -> [u8; 2] {
        let mut values = [0.0; 2];
        self.inner.observe(environment, &mut values);
        values.map(|value| (value * 255.0).round() as u8)
    }

    fn call(&mut self) -> Result<(), EnvironmentsError> {
        self.calls_left -= 1;
        let failed = || EnvironmentsError { environment: "outside".to_owned(), source: "it is broken".into() };
        if self.calls_left == 0 { Err(failed()) } else { Ok(()) }
    }
}

impl Environments for Outside {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn len(&self) -> usize {
        self.inner.len()
    }

    fn begin(&mut self, starts: &[Start], started: &mut Vec<Started>) -> Result<(), EnvironmentsError> {
        self.call()?;
        started.clear();
        for start in starts {
            if self.fails() {
                started.push(Started::NotYet);
                continue;
            }
            self.inner.begin(&[*start], &mut Vec::new())?;
            self.frames[start.environment] = [self.frame_of(start.environment); 2];
            started.push(Started::Now);
        }
        Ok(())
    }

    fn step(&mut self, plays: &[Play], taken: &mut Vec<Taken>) -> Result<(), EnvironmentsError> {
        self.call()?;
        taken.clear();
        for &play in plays {
            let mut one = Vec::new();
            self.inner.step(&[play], &mut one)?;
            let frames = &mut self.frames[play.environment];
            frames[0] = frames[1];
            self.frames[play.environment][1] = self.frame_of(play.environment);
            if self.fails() {
                self.losses.episodes += 1;
                // The inner episode ends as well.
                let mut end = one[0];
                while let Taken::Step { outcome: None, .. } = end {
                    self.inner.step(&[Play { action: GO, ..play }], &mut one)?;
                    end = one[0];
                }
                taken.push(Taken::Lost);
            } else {
                taken.push(one[0]);
            }
        }
        Ok(())
    }

    fn observe(&self, environment: usize, values: &mut [f32]) {
        let frames = self.frames[environment].as_flattened();
        values.iter_mut().zip(frames).for_each(|(value, &byte)| *value = f32::from(byte) / 255.0);
    }

    fn frame(&self, environment: usize) -> Option<Frame<'_>> {
        Some(Frame::Bytes(&self.frames[environment][1]))
    }

    fn picture(&mut self, environment: usize) -> Option<String> {
        let is_first = self.drawn[environment].fetch_add(1, Ordering::Relaxed) == 0;
        is_first.then(|| format!("{:?}", self.frames[environment][1]))
    }

    fn legal_actions(&self, environment: usize, actions: &mut Vec<Action>) {
        self.inner.legal_actions(environment, actions);
    }

    fn to_move(&self, _: usize) -> Player {
        Player::First
    }

    fn losses(&self) -> Losses {
        self.losses
    }
}

/// A model with the same prediction for every state.
fn model(game: &Chain) -> impl LatentModel {
    Even { actions: game.spec().actions }
}

struct Even {
    actions: usize,
}

impl Even {
    fn answer(&self, rows: usize, predictions: &mut inference::LatentPredictions) {
        predictions.clear(self.actions);
        for _ in 0..rows {
            assert!(predictions.push_logits(&vec![0.0; self.actions], None, 0.25, 0.0));
        }
    }
}

impl LatentModel for Even {
    fn attributes(&self) -> Attributes {
        Attributes { name: "even".into(), weights_version: 3, preferred_batch: 64, max_batch: 64 }
    }

    fn reserve(&mut self, _: usize) -> Result<(), inference::Error> {
        Ok(())
    }

    fn initial(
        &mut self,
        batch: &Batch,
        _: &[inference::Slot],
        predictions: &mut inference::LatentPredictions,
    ) -> Result<(), inference::Error> {
        self.answer(batch.len(), predictions);
        Ok(())
    }

    fn recurrent(
        &mut self,
        steps: &[inference::Unroll],
        predictions: &mut inference::LatentPredictions,
    ) -> Result<(), inference::Error> {
        self.answer(steps.len(), predictions);
        Ok(())
    }
}

fn episodes(game: &Chain, failing: usize, openings: Openings) -> LatentEpisodes {
    let environments = Outside::new(game.clone(), 6, failing);
    LatentEpisodes::in_environments(Box::new(environments), Settings { openings, ..settings() }, 0.9, 5)
}

const NONE: Openings = Openings { probability: 0.0, random_plies_max: 0, fork_probability: 0.0 };

/// Every recorded observation is the latest two frames. The rules recompute each frame from the seed and the actions.
#[test]
fn observations_of_every_step_and_the_last_one_are_recorded_with_the_episode() {
    let game = Chain::new(5, 0.1, 5);
    let openings = Openings { probability: 0.5, random_plies_max: 2, ..Openings::default() };
    for failing in [usize::MAX, 17] {
        let (mut episodes, mut sum, mut finished) = (episodes(&game, failing, openings), Round::default(), Vec::new());
        // Lost episodes also get numbers, so the numbers of finished episodes have gaps.
        while finished.len() < 24 {
            sum += episodes.advance(&mut model(&game)).unwrap();
            finished.extend(episodes.drain_finished());
        }
        assert_eq!(sum.episodes_lost > 0, failing == 17);
        let mut truncated = 0;
        for FinishedEpisode { steps, facts, observations, .. } in finished {
            let id = TrajectoryId { actor: 0, epoch: 0, sequence: 0 };
            let trajectory = Trajectory::of_recorded(id, "outside", &steps, facts, observations.unwrap()).unwrap();
            let segment = trajectory.segment(0, usize::MAX).unwrap();
            let layout = ObservationLayout { element: Element::U8, frame_values: 2, stack: 2 };
            assert_eq!(segment.observation_layout(), Some(layout));
            let mut frames = vec![game.start_from(facts.seed); 2];
            for (ply, step) in steps.iter().map(Some).chain([None]).enumerate() {
                let (mut found, mut expected) = ([0.0; 4], [0.0; 4]);
                segment.observation(ply, &mut found).unwrap();
                let newest = &frames[frames.len() - 2..];
                newest.iter().zip(expected.chunks_mut(2)).for_each(|(frame, planes)| game.observe(frame, planes));
                assert!(
                    found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 0.51 / 255.0),
                    "{found:?} {expected:?}"
                );
                let Some(step) = step else { continue };
                let mut next = frames[frames.len() - 1];
                assert_eq!(game.play(&mut next, step.action), step.reward);
                frames.push(next);
            }
            assert_eq!(game.outcome(&frames[frames.len() - 1]), Some(facts.outcome));
            truncated += usize::from(facts.outcome == Outcome::Truncated);
            let value = if facts.outcome == Outcome::Truncated { 0.25 } else { 0.0 };
            assert_eq!(facts.truncation_value, value);
        }
        assert!(truncated > 3, "{truncated} of 24");
    }
}

#[test]
fn lost_episodes_are_counted_and_the_others_are_those_of_environments_that_lose_none() {
    let game = Chain::new(3, 0.1, 6);
    let (all, ..) = play(episodes(&game, usize::MAX, NONE), &mut model(&game), 200);
    let mut losing = episodes(&game, 23, NONE);
    let (mut sum, mut compared) = (Round::default(), 0);
    for _ in 0..2000 {
        sum += losing.advance(&mut model(&game)).unwrap();
        for episode in losing.drain_finished() {
            if let Some(expected) =
                all.iter().find(|other| (other.slot, other.number) == (episode.slot, episode.number))
            {
                assert_eq!(&episode, expected);
                compared += 1;
            }
        }
    }
    assert!(compared > 100, "{compared} episodes");
    assert_eq!(sum.episodes_lost as u64, losing.losses().episodes);
    assert!(sum.episodes_lost > 10, "{} episodes", sum.episodes_lost);
}

#[test]
fn environments_that_cannot_go_on_are_an_error_with_their_reason() {
    let game = Chain::new(3, 0.1, 6);
    let environments = Outside { calls_left: 9, ..Outside::new(game.clone(), 4, usize::MAX) };
    let mut episodes = LatentEpisodes::in_environments(Box::new(environments), settings(), 0.9, 5);
    let error = (0..1000).find_map(|_| episodes.advance(&mut model(&game)).err()).unwrap();
    assert!(matches!(error, crate::Error::Environments(_)), "{error}");
    assert_eq!(error.to_string(), "environment outside failed");
}

#[test]
fn watched_searches_alone_are_drawn_in_the_searched_state_and_a_picture_stays_until_it_is_taken() {
    let game = Chain::new(3, 0.1, 6);
    let environments = Outside::new(game.clone(), 4, usize::MAX);
    let drawn = Arc::clone(&environments.drawn);
    let counts = || [0, 1, 2, 3].map(|environment: usize| drawn[environment].load(Ordering::Relaxed));
    let mut episodes = LatentEpisodes::in_environments(Box::new(environments), settings(), 0.9, 5);
    let mut play = |slots: usize| {
        for _ in 0..400 {
            episodes.watch(slots);
            episodes.advance(&mut model(&game)).unwrap();
        }
        episodes.take_watched()
    };
    assert!(play(0).is_empty());
    assert_eq!(counts(), [0; 4]);
    let watched = play(2);
    let requests = counts();
    assert!(requests[0] > 1 && requests[1] > 1 && requests[2..] == [0, 0], "{requests:?}");
    assert_eq!(watched.len(), 2);
    for search in watched {
        let latest =
            search.observation.unwrap()[2..].iter().map(|value| (value * 255.0).round() as u8).collect::<Vec<_>>();
        assert_eq!(search.picture, Some(format!("{latest:?}")));
    }
    assert!(play(2).iter().all(|search| search.picture.is_none()));
}
