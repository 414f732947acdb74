use super::*;

const A: Host = Host(0);
const B: Host = Host(1);
const C: Host = Host(2);

fn packet(to: Host, mark: u8) -> Vec<u8> {
    let mut packet = vec![0; 21];
    packet[0] = 0x45;
    packet[16..20].copy_from_slice(&to.address().octets());
    packet[20] = mark;
    packet
}

fn given(switch: &mut Switch, now: Instant) -> Vec<(Host, u8)> {
    std::iter::from_fn(|| switch.give(now)).map(|(to, packet)| (to, packet[20])).collect()
}

#[test]
fn packets_go_where_they_are_addressed_to_in_order() {
    let (mut switch, now) = (Switch::new(3, 1), Instant::now());
    switch.take(now, A, &packet(B, 1));
    switch.take(now, A, &packet(C, 2));
    switch.take(now, C, &packet(B, 3));
    assert_eq!(given(&mut switch, now), [(B, 1), (C, 2), (B, 3)]);
}

#[test]
fn what_is_no_packet_for_a_host_is_dropped() {
    let (mut switch, now) = (Switch::new(2, 1), Instant::now());
    for odd in [&[][..], &[0x60; 40], &[0x45; 10], &packet(C, 1), &[0x45; 40]] {
        switch.take(now, A, odd);
    }
    assert_eq!(switch.next(), None);
}

#[test]
fn nothing_passes_a_cut_in_either_direction_nor_what_was_on_the_wire() {
    let (mut switch, now) = (Switch::new(3, 1), Instant::now());
    switch.take(now, A, &packet(B, 1));
    switch.set(B, Link::Cut);
    switch.take(now, A, &packet(B, 2));
    switch.take(now, B, &packet(C, 3));
    switch.take(now, A, &packet(C, 4));
    assert_eq!(given(&mut switch, now), [(C, 4)]);
    switch.set(B, Link::Good);
    switch.take(now, A, &packet(B, 5));
    assert_eq!(given(&mut switch, now), [(B, 5)]);
}

#[test]
fn a_slow_link_delays_both_ways_and_loses_its_share() {
    let (mut switch, now) = (Switch::new(3, 1), Instant::now());
    let delay = Duration::from_millis(100);
    switch.set(B, Link::Slow { delay, loss: 0.02 });
    let sent = 10_000;
    for _ in 0..sent / 2 {
        switch.take(now, A, &packet(B, 1));
        switch.take(now, B, &packet(A, 2));
    }
    switch.take(now, A, &packet(C, 3));
    assert_eq!(given(&mut switch, now), [(C, 3)]);
    assert_eq!(switch.next(), Some(now + delay));
    let lost = sent - given(&mut switch, now + delay).len();
    // The mean is 200 and the standard deviation 14: five of them, so that no seed fails.
    assert!((130..=270).contains(&lost), "{lost} of {sent} lost");
}

#[test]
fn a_full_switch_loses_what_comes() {
    let (mut switch, now) = (Switch::new(2, 1), Instant::now());
    for _ in 0..=WAITING_MAX {
        switch.take(now, A, &packet(B, 1));
    }
    assert_eq!(given(&mut switch, now).len(), WAITING_MAX);
}
