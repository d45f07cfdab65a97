// SPDX-License-Identifier: Apache-2.0

package tune

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/jeoul/jeoul/internal/host/journal"
	"github.com/jeoul/jeoul/internal/tools/tune/setting"
	"github.com/jeoul/jeoul/internal/tools/tune/untracked"
)

// The files that tune writes. It writes nothing else besides settings.
const (
	sysctlFile = "/etc/sysctl.d/90-jeoul-tune.conf"
	unitFile   = "/etc/systemd/system/jeoul-tune.service"
	// unitWanted is the link that starts the unit at boot, as made by `systemctl enable`. Its content is the link's
	// target.
	unitWanted = "/etc/systemd/system/multi-user.target.wants/jeoul-tune.service"
	// grubFile is read after /etc/default/grub by Debian's grub-mkconfig. No other package's file is edited.
	grubFile = "/etc/default/grub.d/90-jeoul-tune.cfg"
)

var ownFiles = []string{sysctlFile, unitFile, unitWanted, grubFile, setting.LimitsFile, setting.SystemdLimitsFile}

// files writes the files that the options and limits require.
func (t *Tuner) files(w *writer, r *Report, opt ApplyOptions) error {
	var errs []error
	for i := range r.Findings {
		f := &r.Findings[i]
		if len(f.Settings) != 1 || f.Settings[0].Key.Kind != setting.KindLimit || f.State != Differs {
			continue
		}
		f.State, f.Note = Changed, "for what is started after the next login, or after `systemctl daemon-reexec`"
		if err := w.files(setting.LimitTexts(f.Settings[0].write)); err != nil {
			f.State, f.Note = Failed, err.Error()
		}
		f.Settings[0].State = f.State
	}
	if opt.EditGrub {
		errs = append(errs, t.editGrub(w, r))
	}
	if opt.Persist {
		errs = append(errs, t.persist(w, r, opt))
	}
	return errors.Join(errs...)
}

// editGrub adds the advised parameters to GRUB's, and to those that earlier runs have added.
func (t *Tuner) editGrub(w *writer, r *Report) error {
	var words []string
	for _, f := range r.With(Advised) {
		words = append(words, f.Settings[0].Key.Name+"="+f.Settings[0].write)
	}
	if len(words) == 0 {
		return nil
	}
	if !t.access.Exists("etc/default/grub") {
		return errors.New(
			"--edit-grub: there is no /etc/default/grub here: give the kernel these parameters by the means of its boot loader: " + strings.Join(words, " "))
	}
	previous, err := previousText(w.access, grubFile)
	if err != nil {
		return err
	}
	// This run does not advise what the kernel has by now, nor what other items have brought in.
	for _, line := range previousValues(previous, "GRUB_CMDLINE_LINUX") {
		kept := slices.DeleteFunc(strings.Fields(strings.Trim(line, `"`)), func(word string) bool {
			name, _, _ := strings.Cut(word, "=")
			return name == "$GRUB_CMDLINE_LINUX" ||
				slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, name+"=") })
		})
		words = append(kept, words...)
	}
	text := setting.FileHeader + fmt.Sprintf("GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX %s\"\n", strings.Join(words, " "))
	if err := w.files(map[string]string{grubFile: text}); err != nil {
		return err
	}
	for i := range r.Findings {
		if r.Findings[i].State == Advised {
			r.Findings[i].Note = "written to " + grubFile
		}
	}
	r.Notes = append(r.Notes, "the kernel's parameters are in "+grubFile+": run `update-grub`, and reboot")
	return nil
}

// persist makes the changes again at every boot: sysctls early, by systemd-sysctl, and the rest by a unit that applies
// the profile again.
func (t *Tuner) persist(w *writer, r *Report, opt ApplyOptions) error {
	sysctls, others := []string{}, false
	for _, rec := range activeRecords(w.journal.records) {
		switch {
		case rec.Op != opSet:
		case rec.Key.Kind == setting.KindSysctl:
			line := fmt.Sprintf("%s = %s", rec.Key.Name, rec.New)
			sysctls = append(slices.DeleteFunc(sysctls, func(s string) bool {
				return strings.HasPrefix(s, rec.Key.Name+" = ")
			}), line)
		default:
			others = true
		}
	}
	texts := map[string]string{}
	if len(sysctls) > 0 {
		texts[sysctlFile] = setting.FileHeader + strings.Join(sysctls, "\n") + "\n"
	}
	if others {
		previous, err := previousText(w.access, unitFile)
		if err != nil {
			return err
		}
		texts[unitFile] = t.unit(opt, previous)
		texts[unitWanted] = unitFile
	}
	if len(texts) == 0 {
		r.Notes = append(r.Notes, "nothing was changed here, so there is nothing to make last")
		return nil
	}
	if err := w.files(texts); err != nil {
		return err
	}
	_, err := w.journal.add(record{Op: opPersisted})
	for _, path := range slices.Sorted(maps.Keys(texts)) {
		r.Notes = append(r.Notes, "for the next boot: "+path)
	}
	return err
}

// previousText returns the text of a file that an earlier run has written, or nothing.
func previousText(a *setting.Access, path string) (string, error) {
	text, _, err := readEntry(a.Path(path))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	if !strings.HasPrefix(text, setting.FileHeader) {
		return "", nil
	}
	return text, nil
}

// previousValues returns the values of a key, from each of its lines.
func previousValues(text, key string) (values []string) {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, key+"="); ok {
			values = append(values, strings.TrimSuffix(value, "\n"))
		}
	}
	return values
}

// unit returns a systemd unit that applies the profile when the interfaces exist, after what the previous unit applies:
// other interfaces, items or roles.
func (t *Tuner) unit(opt ApplyOptions, previous string) string {
	after := []string{"network-online.target"}
	for _, line := range previousValues(previous, "After") {
		after = append(after, strings.Fields(line)...)
	}
	for _, card := range t.cards {
		after = append(after, "sys-subsystem-net-devices-"+escapeUnit(card.Name)+".device")
	}
	slices.Sort(after)
	units := strings.Join(slices.Compact(after), " ")
	command := t.command(opt)
	var commands strings.Builder
	for _, line := range previousValues(previous, "ExecStart") {
		// With "-", the next command is run also if this one fails.
		if line = strings.TrimPrefix(line, "-"); line != command {
			fmt.Fprintf(&commands, "ExecStart=-%s\n", line)
		}
	}
	return setting.FileHeader + fmt.Sprintf(`[Unit]
Description=Settings of this host for Jeoul
After=%s
Wants=%s

[Service]
Type=oneshot
RemainAfterExit=yes
%sExecStart=%s

[Install]
WantedBy=multi-user.target
`, units, units, commands.String(), command)
}

// command returns the command line of this run, as systemd.service(5) reads it.
func (t *Tuner) command(opt ApplyOptions) string {
	command := []string{cmp.Or(opt.Executable, "/usr/local/bin/jeoul"), "tune", "apply", "--role", string(t.opt.Role),
		"--mode", t.opt.Mode}
	for _, card := range t.cards {
		command = append(command, "--interface", card.Name)
	}
	for _, service := range t.opt.Services {
		command = append(command, "--service", untracked.Name(service))
	}
	if !t.opt.PacketCPUs.IsEmpty() {
		command = append(command, "--packet-cpus", t.opt.PacketCPUs.String())
	}
	for _, word := range opt.Arguments {
		// It has quoting, and % is doubled.
		if strings.ContainsAny(word, " \t\"'\\;$") {
			word = strconv.Quote(word)
		}
		command = append(command, strings.ReplaceAll(word, "%", "%%"))
	}
	return strings.Join(command, " ")
}

// escapeUnit escapes an interface's name for systemd's device units (systemd.unit(5), "String Escaping for Inclusion in
// Unit Names").
func escapeUnit(name string) string {
	var b strings.Builder
	for i, c := range []byte(name) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == ':' ||
			c == '.' && i > 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, `\x%02x`, c)
		}
	}
	return b.String()
}

// files writes files, and journals each.
func (w *writer) files(texts map[string]string) error {
	for _, path := range slices.Sorted(maps.Keys(texts)) {
		if err := w.file(path, texts[path]); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
	}
	return nil
}

// file writes one file. A file that was edited since it was written stays.
func (w *writer) file(path, text string) error {
	at := w.access.Path(path)
	now, existed, err := readEntry(at)
	if err != nil {
		return err
	}
	if existed && now == text {
		return nil
	}
	for _, r := range slices.Backward(activeRecords(w.journal.records)) {
		if r.Op == opFile && r.Path == path {
			if existed && now != r.New && now != r.Old {
				return errors.New(
					"it was edited by hand since it was written here: remove it, or take it back with `jeoul tune revert --force`")
			}
			break
		}
	}
	made, err := missingDirs(w.access, path)
	if err != nil {
		return err
	}
	w.pause()
	if _, err := w.journal.add(record{Op: opFile, Path: path, Existed: existed, Old: now, New: text,
		Made: made}); err != nil {
		return err
	}
	w.pause()
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	if err := writeEntry(at, path, text); err != nil {
		return err
	}
	w.pause()
	return nil
}

// missingDirs lists the directories of a file that do not exist, innermost first, by their paths on the host.
func missingDirs(a *setting.Access, path string) ([]string, error) {
	var missing []string
	for dir := filepath.Dir(path); dir != "/"; dir = filepath.Dir(dir) {
		_, err := os.Stat(a.Path(dir))
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		missing = append(missing, dir)
	}
	return missing, nil
}

// isLink reports whether one of the files is a symbolic link.
func isLink(path string) bool { return path == unitWanted }

// readEntry returns the content of a file, or the target of a link.
func readEntry(at string) (text string, existed bool, err error) {
	info, err := os.Lstat(at)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		text, err = os.Readlink(at)
		return text, true, err
	}
	data, err := os.ReadFile(at)
	return string(data), true, err
}

// writeEntry writes a file, or makes a link.
func writeEntry(at, path, text string) error {
	if !isLink(path) {
		return journal.ReplaceOnDisk(at, []byte(text), 0o644)
	}
	fresh := at + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(text, fresh); err != nil {
		return err
	}
	return errors.Join(os.Rename(fresh, at), journal.SyncDir(filepath.Dir(at)))
}
