// SPDX-License-Identifier: GPL-2.0-or-later
use super::thread::Popularity;
use super::*;
use lens::access::Access;
use lens::hash::Rng;

fn one_part(part: &str) -> Program {
    let text = format!(
        "[p]\nnote = \"\"\nfootprint = \"16 MiB\"\nbase = 1.0\nwindow = 4.0\n[[p.part]]\nweight = 1.0\n{part}"
    );
    Program::read(&text).unwrap().remove("p").unwrap()
}

#[test]
fn every_program_that_ships_reads_and_says_that_it_is_synthetic() {
    let all = Program::builtin();
    for name in ["canneal", "facesim", "data-caching", "tunkrank", "graph500"] {
        let p = Program::find(&all, name).unwrap();
        assert!(p.footprint > Bytes::gib(2) && !p.sequential, "{name}");
    }
    assert!(all.values().all(|p| p.note.contains("synthetic")));
    let e = Program::find(&all, "doom").unwrap_err().to_string();
    assert!(e.contains("`doom`") && e.contains("canneal"), "{e}");
}

#[test]
fn popular_pages_are_drawn_as_often_as_the_law_says() {
    for (skew, plateau) in [
        (0.0, 0.0),
        (0.7, 0.0),
        (1.0, 0.0),
        (1.3, 0.0),
        (1.0, 0.1),
        (4.0, 0.25),
    ] {
        let n = 4096u64;
        let law = Popularity::new(n, skew, plateau);
        let mut rng = Rng::new(9);
        let draws = 400_000;
        let head = (0..draws).filter(|_| law.draw(rng.bits()) < n / 16).count() as f64;
        // Of the continuous law that stands for it.
        let first = 1.0 + plateau * n as f64;
        let mass = |m: f64| match skew == 1.0 {
            true => ((m + first) / first).ln(),
            false => ((m + first).powf(1.0 - skew) - first.powf(1.0 - skew)) / (1.0 - skew),
        };
        let want = mass(n as f64 / 16.0) / mass(n as f64);
        let got = head / f64::from(draws);
        assert!((got - want).abs() < 0.005, "{skew}: {got} for {want}");
    }
}

#[test]
fn a_spread_draw_reaches_all_pages_and_only_those() {
    let p = one_part("skew = 0.0\ncluster = 8\nlines = 1\n");
    let mut t = p.threads(1, 1).remove(0);
    let mut seen = vec![false; 4096];
    for _ in 0..100_000 {
        seen[t.visit().page as usize] = true;
    }
    assert!(seen.iter().all(|&s| s));
}

#[test]
fn threads_sweep_shares_that_together_are_all() {
    let p = one_part("lines = 16\n");
    let mut seen = vec![0; 4096];
    for mut t in p.threads(3, 1) {
        for _ in 0..4096 * 4 / 3 {
            let v = t.visit();
            assert!(v.line % 64 + v.lines <= 64);
            seen[v.page as usize] += u32::from(v.lines);
        }
    }
    assert!(seen.iter().filter(|&&n| n == 64).count() > 4000);
}

#[test]
fn what_visits_do_does_not_change_where_they_go() {
    let p = one_part("skew = 0.8\nlines = 3\nstores = 0.5\ndependent = 1.0\n");
    let [mut a, mut b] = [p.threads(1, 1).remove(0), p.threads(1, 1).remove(0)];
    let mut stores = 0;
    for _ in 0..1000 {
        let v = a.visit();
        assert_eq!(b.visit(), v);
        for n in 0..v.lines {
            let (line, access) = a.access(v, n);
            assert_eq!(access.va, v.page << 12 | line << 6);
            assert_eq!(access.dependent, n == 0);
            stores += i32::from(access.write);
        }
    }
    assert!((stores - 1500).abs() < 120, "{stores}");
}

#[test]
fn what_is_assumed_of_programs_can_be_scaled() {
    let p = one_part("skew = 0.8\nlines = 3\nstores = 0.5\ncluster = 4\nplateau = 0.2\n");
    let with = |key, factor| p.scaled(key, factor).unwrap();
    assert_eq!(with("base", 2.0).base, 2.0 * p.base);
    assert_eq!(with("window", 100.0).window, 32.0);
    assert_eq!(with("footprint", 0.5).footprint.0, p.footprint.0 / 2);
    assert_eq!(with("cluster", 0.1).part[0].cluster, 1);
    assert_eq!(with("stores", 3.0).part[0].stores, 1.0);
    assert_eq!(with("plateau", 2.0).part[0].plateau, 0.4);
    let e = p.scaled("lines", 2.0).unwrap_err().to_string();
    assert!(e.contains("program is `lines`; there are base"), "{e}");
    let e = p.scaled("base", -1.0).unwrap_err().to_string();
    assert!(e.contains("program.base is -1; 0 to 100"), "{e}");
    let e = p.scaled("footprint", 0.0).unwrap_err().to_string();
    assert!(e.contains("footprint (MiB) is 0; 1 to"), "{e}");
}

#[test]
fn refusals_name_the_program_and_the_key() {
    for (part, says) in [
        ("lines = 0\n", "p.part.lines is 0; 1 to 64"),
        ("lines = 1\nskew = 9.0\n", "p.part.skew is 9; 0 to 8"),
        ("lines = 1\nplateau = 2.0\n", "p.part.plateau is 2; 0 to 1"),
        ("lines = 1\nregion = [0.5, 0.4]\n", "p.part.region"),
        ("lines = 1\nspeed = 1\n", "speed"),
    ] {
        let text = format!(
            "[p]\nnote = \"\"\nfootprint = \"16 MiB\"\nbase = 1.0\nwindow = 4.0\n[[p.part]]\nweight = 1.0\n{part}"
        );
        let e = Program::read(&text).unwrap_err().to_string();
        assert!(e.contains(says), "{e}");
    }
}

#[test]
fn a_recorded_program_has_its_own_pages_and_nothing_else_that_is_assumed() {
    let text = "[t]\nnote = \"\"\nbase = 1.0\nwindow = 4.0\ntrace = \"x\"\n";
    let p = Program::read(text).unwrap().remove("t").unwrap();
    let loads = |n: u64| (0..n).map(|i| Access::load(i << 12)).collect::<Vec<_>>();
    let played = p
        .play(Arc::new(Recorded::new(vec![loads(300); 2]).unwrap()))
        .unwrap();
    assert_eq!((played.pages(), played.recorded_threads()), (300, Some(2)));
    let threads = played.threads(2, 1);
    assert_eq!(threads[1].clone().visit().page, 0);
    assert_eq!(played.scaled("base", 2.0).unwrap().base, 2.0);
    let e = played.scaled("plateau", 2.0).unwrap_err().to_string();
    assert!(e.contains("base and window"), "{e}");
    let e = Program::read(&format!("{text}footprint = \"1 GiB\"\n")).unwrap_err();
    assert!(
        e.to_string().contains("t.trace is beside a footprint"),
        "{e}"
    );
    let few = p
        .play(Arc::new(Recorded::new(vec![loads(9)]).unwrap()))
        .unwrap_err();
    assert!(few.to_string().contains("footprint (MiB) is 0.0"), "{few}");
}
