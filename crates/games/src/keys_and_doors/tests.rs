use std::collections::{HashMap, VecDeque};

use super::*;

fn game(size: u8) -> KeysAndDoors {
    KeysAndDoors::new(Size::new(size).unwrap())
}

/// Returns the fewest steps from a position to the goal, by breadth-first search over all positions.
fn shortest(game: &KeysAndDoors, start: Position) -> u16 {
    let mut queue = VecDeque::from([(start, 0)]);
    let mut seen = HashMap::new();
    while let Some((position, steps)) = queue.pop_front() {
        for action in 0..ACTIONS.len() as u16 {
            let mut next = position;
            if game.play(&mut next, Action(action)) > 0.0 {
                return steps + 1;
            }
            // Positions that differ only in the number of steps are equal here.
            next.steps = 0;
            if seen.insert(next, ()).is_none() {
                queue.push_back((next, steps + 1));
            }
        }
    }
    panic!("the goal cannot be reached from\n{}", game.render(&start));
}

#[test]
fn every_layout_can_be_solved_and_the_reward_falls_with_the_steps() {
    for size in [5, 6, 8] {
        let game = game(size);
        for seed in 0..30 {
            let start = game.start_from(seed);
            let steps = shortest(&game, start);
            // At least: turn to the key, pick it up, turn to the door, open it, pass it.
            assert!((6..60).contains(&steps), "size {size}, seed {seed}: {steps} steps");
        }
    }
}

#[test]
fn the_goal_ends_the_episode_with_the_published_reward() {
    let game = game(5);
    let position = Position { agent: Cell { column: 3, row: 2 }, facing: Facing::Down, steps: 99, ..game.start() };
    let mut position = position;
    let reward = game.play(&mut position, Action(FORWARD));
    assert_eq!(game.outcome(&position), Some(Outcome::Finished));
    assert!((reward - (1.0 - 0.9 * 100.0 / 250.0)).abs() < 1e-6, "{reward}");
}

#[test]
fn an_episode_without_the_goal_is_truncated_after_ten_steps_per_cell() {
    let game = game(5);
    let mut position = game.start();
    for _ in 0..250 {
        assert_eq!(game.outcome(&position), None);
        assert!(game.play(&mut position, Action(TURN_LEFT)) == 0.0);
    }
    assert_eq!(game.outcome(&position), Some(Outcome::Truncated));
}

#[test]
fn a_locked_door_opens_only_with_the_key() {
    let game = game(5);
    let start = game.start();
    let facing_door = Cell { column: start.wall - 1, row: start.door_row };
    let far = Some(Cell { column: 1, row: 3 });
    let mut position = Position { agent: facing_door, facing: Facing::Right, key: far, ..start };
    position.act(TOGGLE);
    position.act(FORWARD);
    assert_eq!((position.door, position.agent), (Door::Locked, facing_door));
    position.key = None;
    position.act(TOGGLE);
    position.act(FORWARD);
    assert_eq!((position.door, position.agent.column), (Door::Open, start.wall));
}

#[test]
fn the_starts_of_the_smallest_grid_are_uniform_over_all_layouts() {
    let game = game(5);
    const DRAWS: u32 = 48_000;
    let mut counts: HashMap<Position, u32> = HashMap::new();
    for seed in 0..DRAWS {
        *counts.entry(game.start_from(seed.into())).or_default() += 1;
    }
    // Three cells for the agent, two for the key, four directions, two doors.
    assert_eq!(counts.len(), 48);
    // Six standard deviations of a count with mean 1,000.
    assert!(counts.values().all(|count| count.abs_diff(1000) < 190), "{counts:?}");
}

#[test]
fn the_grid_is_drawn() {
    let position = Position {
        agent: Cell { column: 1, row: 1 },
        facing: Facing::Down,
        wall: 2,
        door_row: 2,
        door: Door::Locked,
        key: Some(Cell { column: 1, row: 3 }),
        steps: 0,
        size: 5,
    };
    assert_eq!(game(5).render(&position), "#####\n#v#.#\n#.L.#\n#k#*#\n#####");
}
