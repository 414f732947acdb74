use experience::Limits;

use super::*;

#[test]
fn a_server_takes_them_and_every_step_is_an_item() {
    let games = Games::new(30, 1).unwrap();
    for sequence in 0..COUNT as u64 + 3 {
        let trajectory = games.trajectory(5, 2, sequence);
        trajectory.validate(Limits { steps_max: 42, actions: 7 }).unwrap();
        assert_eq!(trajectory.id, TrajectoryId { actor: 5, epoch: 2, sequence });
        assert_eq!(trajectory.full_plies().count(), 30);
        ConnectFour::new().replay(&trajectory.actions().collect::<Vec<_>>()).unwrap();
    }
    assert!(Games::new(43, 1).unwrap_err().to_string().contains("--steps"));
}
