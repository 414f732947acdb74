use super::*;

#[test]
fn what_is_encoded_is_decoded_to_the_last_bit() {
    let trajectories = examples();
    assert_eq!(decode(encode(&trajectories).as_bytes()), (trajectories, vec![]));
}

#[test]
fn a_broken_line_is_named_and_costs_only_itself() {
    let trajectories = examples();
    let text = encode(&trajectories).replacen("\"actor\"", "\"acto\"", 1);
    let (kept, faults) = decode(text.as_bytes());
    assert_eq!(kept, trajectories[1..]);
    assert_eq!(faults.len(), 1);
    assert_eq!(faults[0].0, 1);
    assert!(faults[0].1.contains("acto"), "{faults:?}");
}

#[test]
fn a_file_that_ends_in_the_middle_of_a_line_keeps_the_others() {
    let trajectories = examples();
    let text = encode(&trajectories);
    let (kept, faults) = decode(&text.as_bytes()[..text.len() - 20]);
    assert_eq!((kept.len(), faults.len()), (trajectories.len() - 1, 1));
}

#[test]
fn a_flipped_byte_anywhere_costs_at_most_the_lines_it_is_in() {
    let trajectories = examples();
    let text = encode(&trajectories).into_bytes();
    for at in 0..text.len() {
        let mut damaged = text.clone();
        damaged[at] ^= 0x80;
        // A line that ends nowhere takes the next one with it.
        let hit = 1 + usize::from(text[at] == b'\n');
        assert!(decode(&damaged).0.len() >= trajectories.len() - hit, "flipped {at}");
    }
}

fn server(id: &str, endpoint: &str, has_own_name: bool) -> Server {
    Server { id: id.into(), endpoint: endpoint.into(), has_own_name }
}

#[test]
fn a_server_with_a_name_of_its_own_is_found_by_it_and_any_other_by_its_address() {
    let (named, unnamed) =
        (server("http://a:1", "http://10.0.0.1:1", true), server("http://a:1", "http://10.0.0.1:1", false));
    let moved = server("http://a:1", "http://10.0.0.9:1", true);
    let other = server("http://b:1", "http://10.0.0.2:1", true);
    assert_eq!(Owner::new(&named, false).among(&[other.clone(), moved.clone()]), Some(moved.clone()));
    assert_eq!(Owner::new(&unnamed, false).among(&[other.clone(), moved]), None);
    assert_eq!(Owner::new(&unnamed, false).among(&[other.clone(), named.clone()]), Some(named));
    assert_eq!(Owner::new(&other, false).among(&[]), None);
}

#[test]
fn the_only_server_is_the_only_server_and_never_one_of_several() {
    let owner = Owner::new(&Server::at("http://127.0.0.1:7001"), true);
    let (elsewhere, other) = (Server::at("http://127.0.0.1:9000"), Server::at("http://127.0.0.1:9001"));
    assert_eq!(owner.among(std::slice::from_ref(&elsewhere)), Some(elsewhere.clone()));
    assert_eq!(owner.among(&[elsewhere, other]), None);
}

#[test]
fn what_was_spooled_before_there_were_several_servers_is_owed_to_nobody() {
    let owed = &examples()[..1];
    assert_eq!(owed[0].to, None);
    assert!(!encode(owed).contains("server"), "{}", encode(owed));
    assert_eq!(decode(encode(owed).as_bytes()).0, owed);
}
