// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/host/journal"
	"github.com/jeoul/jeoul/internal/tools/tune/faketree"
	"github.com/jeoul/jeoul/internal/tools/tune/setting"
)

// few returns a profile of some items of every kind that a fake tree has.
func few(t testing.TB) *Profile {
	t.Helper()
	p, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	p, err = p.Only([]string{"swappiness", "rmem-max", "ring-rx", "open-files", "irqbalance"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func apply(t *testing.T, root string) *Report {
	t.Helper()
	tuner := open(t, Options{Role: RoleWeb, Interfaces: []string{"eth0"}, Root: root, Profile: few(t)})
	r, err := tuner.Apply(ApplyOptions{Persist: true})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func write(t *testing.T, root, path, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestChangedByHand changes a value and one of tune's files after apply. Revert reports it, leaves both, undoes the
// rest, and loses nothing.
func TestChangedByHand(t *testing.T) {
	for _, choice := range []RevertOptions{{Force: true}, {Forget: true}} {
		root := fake(t, small)
		before := snapshot(t, root)
		apply(t, root)
		write(t, root, "proc/sys/vm/swappiness", "33\n")
		write(t, root, sysctlFile, "vm.swappiness = 33\n")

		events, err := Revert(RevertOptions{Root: root})
		if !errors.Is(err, ErrLeft) {
			t.Fatal(events, err)
		}
		var left []string
		for _, e := range events {
			if e.Left {
				left = append(left, e.What)
			}
		}
		if diff := cmp.Diff([]string{sysctlFile, "vm.swappiness"}, left); diff != "" {
			t.Errorf("left:\n%s", diff)
		}
		after := snapshot(t, root)
		if after["/proc/sys/vm/swappiness"] != "33" || after["/proc/sys/net/core/rmem_max"] != "212992" ||
			after[sysctlFile] != "vm.swappiness = 33" {
			t.Error("the wrong values were taken back")
		}
		// Another apply leaves the edited file.
		tuner := open(t, Options{Role: RoleWeb, Interfaces: []string{"eth0"}, Root: root, Profile: few(t)})
		if _, err := tuner.Apply(ApplyOptions{Persist: true}); err == nil ||
			!strings.Contains(err.Error(), "edited by hand") {
			t.Errorf("a file that was edited: %v", err)
		}

		choice.Root = root
		if _, err := Revert(choice); err != nil {
			t.Fatal(err)
		}
		after = snapshot(t, root)
		if choice.Forget {
			before[sysctlFile], before[filepath.Dir(sysctlFile)+"/"] = "vm.swappiness = 33", ""
			if after["/proc/sys/vm/swappiness"] == "60" {
				t.Error("what was to be kept was put back")
			}
			before["/proc/sys/vm/swappiness"] = after["/proc/sys/vm/swappiness"]
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("%+v (-before +after):\n%s", choice, diff)
		}
	}
}

func TestOtherMachineAndBoot(t *testing.T) {
	root := fake(t, small)
	before := snapshot(t, root)
	tuner := open(t, Options{Role: RoleWeb, Interfaces: []string{"eth0"}, Root: root, Profile: few(t)})
	if _, err := tuner.Apply(ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	journal := filepath.Join(root, StateDir, "host.jsonl")
	kept, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}

	write(t, root, "etc/machine-id", "ffffffffffffffffffffffffffffffff\n")
	if _, err := Revert(RevertOptions{Root: root}); !errors.Is(err, ErrElsewhere) {
		t.Errorf("another machine's: %v", err)
	}
	if _, err := open(t, tuner.opt).Apply(ApplyOptions{}); !errors.Is(err, ErrElsewhere) {
		t.Errorf("another machine's: %v", err)
	}
	if now, err := os.ReadFile(journal); err != nil || string(now) != string(kept) {
		t.Error("another machine's journal was changed")
	}
	write(t, root, "etc/machine-id", before["/etc/machine-id"]+"\n")

	// A reboot resets settings, but no files.
	for path, text := range before {
		if strings.HasPrefix(path, "/proc/sys/") && !strings.HasSuffix(path, "/") {
			write(t, root, path, text+"\n")
		}
	}
	write(t, root, "proc/sys/vm/swappiness", "10\n") // by sysctl.conf, at boot
	write(t, root, "proc/sys/kernel/random/boot_id", "another\n")
	events, err := Revert(RevertOptions{Root: root})
	if err != nil || len(events) == 0 || !strings.Contains(events[0].Note, "an earlier boot") {
		t.Fatal(events, err)
	}
	after := snapshot(t, root)
	if after["/proc/sys/vm/swappiness"] != "10" {
		t.Error("a value of this boot was taken for one of ours")
	}
	for _, path := range []string{setting.LimitsFile, setting.SystemdLimitsFile} {
		if _, ok := after[path]; ok {
			t.Errorf("%s is still there", path)
		}
	}
}

func TestPersistedChangesOutliveTheBoot(t *testing.T) {
	root := fake(t, small)
	before := snapshot(t, root)
	apply(t, root)
	write(t, root, "proc/sys/kernel/random/boot_id", "another\n")
	// tune's file has set it again.
	if _, err := Revert(RevertOptions{Root: root}); err != nil {
		t.Fatal(err)
	}
	before["/proc/sys/kernel/random/boot_id"] = "another"
	if diff := cmp.Diff(before, snapshot(t, root)); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
}

// TestTwoPersistedRuns: the files for the next boot keep what an earlier run has put there.
func TestTwoPersistedRuns(t *testing.T) {
	root := fake(t, small)
	before := snapshot(t, root)
	run := func(interfaces []string, items ...string) {
		t.Helper()
		p, err := Load("")
		if err == nil {
			p, err = p.Only(items)
		}
		if err != nil {
			t.Fatal(err)
		}
		tuner := open(t, Options{Role: RoleBalancer, Interfaces: interfaces, Root: root, Profile: p})
		if _, err := tuner.Apply(ApplyOptions{Persist: true, EditGrub: true, Executable: "/usr/bin/jeoul",
			Arguments: []string{"--item", items[0]}}); err != nil {
			t.Fatal(err)
		}
	}
	run([]string{"eth0"}, "ring-rx", "isolcpus")
	run([]string{"eth0"}, "irqbalance", "nohz-full")
	run(nil, "swappiness")
	run([]string{"eth0"}, "irqbalance") // the same command again: it is the last one now
	const apply = "/usr/bin/jeoul tune apply --role balancer --mode l2dsr "
	const units = "network-online.target sys-subsystem-net-devices-eth0.device\n"
	for path, want := range map[string]string{
		unitFile: "After=" + units + "Wants=" + units + "\n[Service]\nType=oneshot\nRemainAfterExit=yes\n" +
			"ExecStart=-" + apply + "--interface eth0 --item ring-rx\nExecStart=-" + apply + "--item swappiness\n" +
			"ExecStart=" + apply + "--interface eth0 --item irqbalance\n\n",
		grubFile:   `GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX isolcpus=managed_irq,domain,1-4 nohz_full=1-4"`,
		sysctlFile: "vm.swappiness = 10\n",
	} {
		text, _, err := readEntry(filepath.Join(root, path))
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("%s (%v) does not contain %q:\n%s", path, err, want, text)
		}
	}
	if _, err := Revert(RevertOptions{Root: root}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, snapshot(t, root)); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
}

// TestInterruptsOfAnotherBoot: the kernel numbers interrupts anew at each boot, so revert leaves those of the same
// numbers, which may be another device's.
func TestInterruptsOfAnotherBoot(t *testing.T) {
	root := fake(t, small)
	p, err := Load("")
	if err == nil {
		p, err = p.Only([]string{"queues", "irq-affinity"})
	}
	if err != nil {
		t.Fatal(err)
	}
	tuner := open(t, Options{Role: RoleWeb, Interfaces: []string{"eth0"}, Root: root, Profile: p})
	r, err := tuner.Apply(ApplyOptions{Persist: true})
	if err != nil || len(r.With(Changed)) != 2 {
		t.Fatal(describe(r), err)
	}
	// The reboot: settings are the kernel's, and the files of --persist stay.
	if err := os.Remove(filepath.Join(root, "proc/self")); err != nil {
		t.Fatal(err)
	}
	if err := faketree.Build(root, small); err != nil {
		t.Fatal(err)
	}
	write(t, root, "proc/sys/kernel/random/boot_id", "another\n")
	affinities := map[string]string{"/proc/irq/100/smp_affinity_list": "5", "/proc/irq/103/smp_affinity_list": "6"}
	for path, value := range affinities {
		write(t, root, path, value+"\n")
	}

	events, err := Revert(RevertOptions{Root: root})
	if err != nil {
		t.Errorf("%+v, %v", events, err)
	}
	after := snapshot(t, root)
	for path, want := range affinities {
		if after[path] != want {
			t.Errorf("%s is %s, want %s", path, after[path], want)
		}
	}
	if _, there := after[unitFile]; there {
		t.Errorf("%s is still there", unitFile)
	}
}

func TestTwoAtOnce(t *testing.T) {
	root := fake(t, small)
	apply(t, root)
	dir, err := os.Open(filepath.Join(root, StateDir))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	tuner := open(t, Options{Role: RoleWeb, Root: root})
	j, err := openJournal(tuner.access.Tree, StateDir, RoleWeb, tuner.facts)
	if err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, root)
	if _, err := tuner.Apply(ApplyOptions{}); !errors.Is(err, ErrBusy) {
		t.Errorf("apply: %v", err)
	}
	if _, err := Revert(RevertOptions{Root: root}); !errors.Is(err, ErrBusy) {
		t.Errorf("revert: %v", err)
	}
	if diff := cmp.Diff(before, snapshot(t, root)); diff != "" {
		t.Errorf("something was changed:\n%s", diff)
	}
	j.close()
}

func TestJournalThatCannotBeTrusted(t *testing.T) {
	root := fake(t, small)
	apply(t, root)
	path := filepath.Join(root, StateDir, "host.jsonl")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, corrupt := range map[string]func() error{
		"others can write": func() error { return os.Chmod(path, 0o622) },
		"no journal":       func() error { return os.WriteFile(path, []byte("hello\n"), 0o600) },
		"a path": func() error {
			return os.WriteFile(path, []byte(strings.Replace(string(good), sysctlFile, "/etc/passwd", 1)), 0o600)
		},
		"newer": func() error {
			return os.WriteFile(path, []byte(strings.Replace(string(good), `"version":1`, `"version":2`, 1)), 0o600)
		},
	} {
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := corrupt(); err != nil {
			t.Fatal(err)
		}
		before := snapshot(t, root)
		if _, err := Revert(RevertOptions{Root: root}); !errors.Is(err, ErrJournal) {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(before, snapshot(t, root)); diff != "" {
			t.Errorf("%s: something was changed:\n%s", name, diff)
		}
	}
}

// TestTornLine: an incomplete last line, whose writer died, was never acted on.
func TestTornLine(t *testing.T) {
	root := fake(t, small)
	before := snapshot(t, root)
	apply(t, root)
	path := filepath.Join(root, StateDir, "host.jsonl")
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(`{"op":"set","key":{"kind":"sysctl","na`); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	// A profile that is applied later is recorded completely.
	write(t, root, "proc/sys/vm/swappiness", "60\n")
	tuner := open(t, Options{Role: RoleWeb, Interfaces: []string{"eth0"}, Root: root, Profile: few(t)})
	if _, err := tuner.Apply(ApplyOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := Revert(RevertOptions{Root: root}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, snapshot(t, root)); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
}

// TestFailedAppend: of a record whose writing failed, the file has a part or all. The records after it can be read, and
// are numbered as if it had none.
func TestFailedAppend(t *testing.T) {
	for _, written := range []string{"nothing", "a part", "all"} {
		root := fake(t, small)
		tuner := open(t, Options{Role: RoleWeb, Root: root})
		j, err := openJournal(tuner.access.Tree, StateDir, RoleWeb, tuner.facts)
		if err != nil {
			t.Fatal(err)
		}
		set := func(name string) record {
			return record{Op: opSet, Key: &setting.Key{Kind: setting.KindSysctl, Name: name}, Old: "1", New: "2"}
		}
		add := func(r record) (line int) {
			t.Helper()
			if line, err = j.add(r); err != nil {
				t.Fatal(err)
			}
			return line
		}
		add(set("net.core.somaxconn"))
		text, err := os.ReadFile(j.path)
		if err != nil {
			t.Fatal(err)
		}
		line := failToAppend(t, j, set("vm.swappiness"))
		line = line[:map[string]int{"nothing": 0, "a part": len(line) / 2, "all": len(line)}[written]]
		if err := errors.Join(os.Remove(j.path), os.WriteFile(j.path, append(text, line...), 0o600)); err != nil {
			t.Fatal(err)
		}
		add(record{Op: opUndone, Line: add(set("net.core.rmem_max"))})
		if text, err = os.ReadFile(j.path); err != nil {
			t.Fatal(err)
		}
		_, records, err := decodeJournal(text)
		if err != nil {
			t.Errorf("%s was written: %v", written, err)
		} else if diff := cmp.Diff([]record{set("net.core.somaxconn")}, activeRecords(records)); diff != "" {
			t.Errorf("%s was written (-want +got):\n%s", written, diff)
		}
		j.close()
	}
}

// failToAppend adds a record to a journal whose file can be written, but not synchronised, and returns what was
// written. It leaves a pipe for the journal's file.
func failToAppend(t *testing.T, j *changeLog, r record) []byte {
	t.Helper()
	if err := errors.Join(os.Remove(j.path), unix.Mkfifo(j.path, 0o600)); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(j.path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	if line, err := j.add(r); err == nil {
		t.Fatalf("line %d was written into a pipe", line)
	}
	written := make([]byte, 4096)
	n, err := pipe.Read(written)
	if err != nil {
		t.Fatal(err)
	}
	return written[:n]
}

func FuzzJournal(f *testing.F) {
	head := `{"format":"jeoul-tune-journal","version":1,"machine":"m","boot":"b","namespace":1,"cookie":2,"role":"web","started":"2026-01-01T00:00:00Z"}` + "\n"
	f.Add([]byte(head))
	f.Add([]byte(head + `{"op":"set","key":{"kind":"sysctl","name":"net.core.somaxconn"},"old":"1","new":"2"}` + "\n" +
		`{"op":"undone","old":"","new":"","line":1}` + "\n"))
	f.Add([]byte(head + `{"op":"file","path":"/etc/sysctl.d/90-jeoul-tune.conf","old":"","new":"x"}` + "\n" +
		`{"op":"per`))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, records, err := decodeJournal(data)
		if err != nil {
			if !errors.Is(err, ErrJournal) {
				t.Fatalf("not ErrJournal: %v", err)
			}
			return
		}
		for _, r := range activeRecords(records) {
			if r.Key != nil && r.Key.Kind == setting.KindFile &&
				(filepath.Clean(r.Key.Name) != r.Key.Name || !strings.HasPrefix(r.Key.Name, "/proc/irq/") &&
					!strings.HasPrefix(r.Key.Name, "/sys/")) {
				t.Fatalf("%q would be written", r.Key.Name)
			}
			if r.Op == opFile && !strings.HasPrefix(r.Path, "/etc/") {
				t.Fatalf("%q would be written", r.Path)
			}
		}
	})
}

// TestJournalOfEarlierVersions pins the first line, which identifies the journal's owner.
func TestJournalOfEarlierVersions(t *testing.T) {
	const line = `{"format":"jeoul-tune-journal","version":1,"machine":"m","boot":"b","namespace":1,"cookie":2,"role":"web","started":"2026-01-01T00:00:00Z"}`
	want := header{Format: journalFormat, Version: journalVersion, Machine: "m",
		Place: journal.Place{Boot: "b", Namespace: 1, Cookie: 2}, Role: RoleWeb,
		Started: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	got, records, err := decodeJournal([]byte(line + "\n"))
	if err != nil || len(records) != 0 || got != want {
		t.Errorf("read %+v, %v (%v), want %+v", got, records, err, want)
	}
	if text, err := json.Marshal(want); err != nil || string(text) != line {
		t.Errorf("wrote %s (%v), want %s", text, err, line)
	}
}
