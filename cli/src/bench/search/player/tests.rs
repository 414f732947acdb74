use games::TicTacToe;

use super::*;

fn player(root: RootPolicy, seed: u64) -> Player<TicTacToe> {
    Player::new(TicTacToe::new(), root, 32, seed)
}

#[test]
fn a_move_takes_its_simulations_unless_the_root_is_proven() {
    for root in [RootPolicy::Puct, RootPolicy::GUMBEL] {
        let mut player = player(root, 1);
        assert_eq!(player.play_move(), 32);
        assert!((0..200).all(|_| (1..=32).contains(&player.play_move())));
    }
}

#[test]
fn games_go_to_their_end_and_begin_anew() {
    let mut player = player(RootPolicy::Puct, 1);
    let plies: Vec<usize> = (0..60)
        .map(|_| {
            player.play_move();
            player.plies
        })
        .collect();
    assert!(plies.iter().filter(|&&plies| plies == 0).count() >= 6, "{plies:?}");
    assert!(plies.iter().any(|&plies| plies >= 5), "{plies:?}");
}

#[test]
fn a_seed_fixes_the_games() {
    let [first, second, other] = [1, 1, 2].map(|seed| {
        let mut player = player(RootPolicy::Puct, seed);
        (0..30).map(|_| (player.play_move(), player.nodes())).collect::<Vec<_>>()
    });
    assert_eq!(first, second);
    assert_ne!(first, other);
}

#[test]
fn memory_is_counted_at_the_end_of_each_search() {
    let mut player = player(RootPolicy::Puct, 1);
    player.play_move();
    assert_eq!((player.nodes(), player.bytes()), (player.tree.node_count() as u64, player.tree.bytes() as u64));
}
