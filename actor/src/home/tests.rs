use super::*;

#[test]
fn epochs_grow_with_every_start() {
    let run = tempfile::tempdir().unwrap();
    let epochs = [0; 3].map(|_| Home::open(run.path(), 7).unwrap().next_epoch().unwrap());
    assert_eq!(epochs, [1, 2, 3]);
    assert_eq!(Home::open(run.path(), 8).unwrap().next_epoch().unwrap(), 1, "actors do not share them");
}

#[test]
fn a_damaged_epoch_is_replaced_by_a_larger_one() {
    let run = tempfile::tempdir().unwrap();
    let home = Home::open(run.path(), 7).unwrap();
    for damaged in [&b"x"[..], b"", b"\xff\xfe", b"18446744073709551615"] {
        fs::write(home.directory.join("epoch"), damaged).unwrap();
        let epoch = home.next_epoch().unwrap();
        assert!(epoch > 1_000_000_000_000);
        assert_eq!(home.next_epoch().unwrap(), epoch + 1);
    }
}

#[test]
fn two_processes_do_not_share_an_actor() {
    let run = tempfile::tempdir().unwrap();
    let first = Home::open(run.path(), 7).unwrap();
    let error = Home::open(run.path(), 7).unwrap_err().to_string();
    assert!(error.contains("another process uses"), "{error}");
    drop(first);
    Home::open(run.path(), 7).unwrap();
}

#[test]
fn the_spool_holds_what_was_written_last() {
    let run = tempfile::tempdir().unwrap();
    let home = Home::open(run.path(), 7).unwrap();
    assert_eq!(home.read_spool().unwrap(), []);
    let trajectories = spool::examples();
    home.write_spool(&trajectories).unwrap();
    assert_eq!(home.read_spool().unwrap(), trajectories);
    home.write_spool(&trajectories[1..]).unwrap();
    assert_eq!(home.read_spool().unwrap(), trajectories[1..]);
    home.write_spool(&[]).unwrap();
    assert_eq!(home.read_spool().unwrap(), []);
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let run = tempfile::tempdir().unwrap();
    let blocked = run.path().join("file");
    fs::write(&blocked, "").unwrap();
    let error = Home::open(&blocked, 7).unwrap_err();
    assert!(error.to_string().contains("file"), "{error}");
}

#[test]
fn replicas_that_claim_a_home_have_each_their_own_and_take_over_what_one_left() {
    let run = tempfile::tempdir().unwrap();
    let mut replicas: Vec<(u64, Home)> = (0..4).map(|_| Home::claim(run.path()).unwrap()).collect();
    let mut ids: Vec<u64> = replicas.iter().map(|(id, _)| *id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), replicas.len(), "no two are the same actor");
    assert!(ids.iter().all(|id| id >> DRAWN_ID_BITS == 0));

    let (gone, home) = replicas.swap_remove(2);
    let (epoch, owed) = (home.next_epoch().unwrap(), spool::examples());
    home.write_spool(&owed).unwrap();
    drop(home);
    let (id, home) = Home::claim(run.path()).unwrap();
    assert_eq!(id, gone, "a home that nobody has comes before a new one");
    assert_eq!((home.next_epoch().unwrap(), home.read_spool().unwrap()), (epoch + 1, owed));
}

#[test]
fn what_is_no_home_is_not_claimed() {
    let run = tempfile::tempdir().unwrap();
    fs::create_dir_all(run.path().join("actors/backup")).unwrap();
    fs::write(run.path().join("actors/notes"), "").unwrap();
    let (id, home) = Home::claim(run.path()).unwrap();
    assert!(home.directory.ends_with(id.to_string()));
    let error = Home::claim(&run.path().join("actors/notes")).unwrap_err().to_string();
    assert!(error.contains("notes"), "{error}");
}
