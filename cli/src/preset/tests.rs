use super::*;

#[test]
fn every_preset_is_a_run_file_whose_values_all_processes_accept() {
    for game in ["tic_tac_toe", "connect_four", "hex-3", "hex-11"] {
        let mut fleet = preset(game).unwrap();
        fleet.run.game = game.to_owned();
        fleet.actor.threads = 1;
        fleet.check().unwrap();
    }
}
