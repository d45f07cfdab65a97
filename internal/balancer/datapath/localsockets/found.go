// SPDX-License-Identifier: Apache-2.0

package localsockets

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/keeper"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/pins"
)

// Find opens the programs that another process has left attached to sockets. It detaches a set that is incomplete or
// cannot be opened, and returns a note that says why; the next change attaches programs again if they are configured.
func Find(store *pins.Store, set uint64) (found *Sockets, note string, err error) {
	s := &Sockets{holds: make([]attach.Hold, len(socketHooks)), programs: make([]*ebpf.Program, len(socketHooks))}
	names, err := store.Links()
	if err != nil {
		return nil, "", err
	}
	opened, any := 0, false
	reason := errIncomplete
	for _, name := range names {
		if !strings.HasPrefix(name, keeper.SocketPrefix) {
			continue
		}
		any = true
		if failed := s.open(store, set, name); failed == nil {
			opened++
		} else if reason == errIncomplete {
			reason = failed
		}
	}
	if !any {
		return nil, "", nil
	}
	if opened == len(socketHooks) {
		if reason = s.openMaps(store, set); reason == nil {
			return s, "", nil
		}
	}
	s.CloseUnless(nil)
	note = fmt.Sprintf("the programs at the sockets of this host cannot be taken over, and are attached anew: "+
		"open sockets are forgotten, and see the backend's address: %v", reason)
	return nil, note, errors.Join(attach.CloseAll(compact(s.holds)), removeSocketLinks(store))
}

// errIncomplete says that a process was killed while it attached or detached the programs.
var errIncomplete = errors.New("they are attached in part, or to several control groups")

// open opens a link, and its program. errIncomplete: the link belongs to another control group than the links before.
func (s *Sockets) open(store *pins.Store, set uint64, name string) error {
	var id uint64
	var program string
	if n, err := fmt.Sscanf(name, keeper.SocketPrefix+"%d-%s", &id, &program); n != 2 || err != nil {
		return fmt.Errorf("%s is no link of ours", store.Path("", name))
	}
	hook := hookNamed(program)
	if hook < 0 || s.holds[hook] != nil || s.id != 0 && s.id != id {
		return errIncomplete
	}
	l, err := link.LoadPinnedLink(store.Path("", name), nil)
	if err != nil {
		return fmt.Errorf("%s is no link of ours: %w", store.Path("", name), err)
	}
	if s.programs[hook], err = openProgram(store, set, hook, l); err != nil {
		l.Close()
		return err
	}
	s.id, s.holds[hook] = id, attach.PinnedLink{Link: l}
	return nil
}

// openProgram opens the program of a hook by its pin. Earlier versions pinned none: their program is opened by the id
// that the link has, for which the kernel wants CAP_SYS_ADMIN. After a kill during a change, a later program than the
// pinned one may be attached: the pinned one is of the memory that is taken over.
func openProgram(store *pins.Store, set uint64, hook int, l link.Link) (*ebpf.Program, error) {
	path := store.Path(pins.Set(set), programPin(hook))
	program, err := ebpf.LoadPinnedProgram(path, nil)
	if err == nil {
		return program, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is no program of ours: %w", path, err)
	}
	info, err := l.Info()
	if err != nil {
		return nil, fmt.Errorf("asking for the program at %s: %w", socketHooks[hook].program, err)
	}
	if program, err = ebpf.NewProgramFromID(info.Program); err != nil {
		return nil, fmt.Errorf("opening program %d, which an earlier version has attached without a pin and which takes "+
			"CAP_SYS_ADMIN: %w", info.Program, err)
	}
	return program, nil
}

// openMaps opens the programs' maps.
func (s *Sockets) openMaps(store *pins.Store, set uint64) (err error) {
	spec, err := objects.Local.Spec()
	if err != nil {
		return err
	}
	for name, to := range map[string]**ebpf.Map{objects.LocalMapLocalSockets: &s.known,
		objects.LocalMapLocalEvents: &s.events} {
		if *to, err = ebpf.LoadPinnedMap(store.Path(pins.Set(set), name), nil); err != nil {
			return err
		}
		if err := spec.Maps[name].Compatible(*to); err != nil {
			return err
		}
	}
	return nil
}

func compact(holds []attach.Hold) (compacted []attach.Hold) {
	for _, h := range holds {
		if h != nil {
			compacted = append(compacted, h)
		}
	}
	return compacted
}

// removeSocketLinks detaches all programs of ours from sockets.
func removeSocketLinks(store *pins.Store) error {
	names, err := store.Links()
	for _, name := range names {
		if !strings.HasPrefix(name, keeper.SocketPrefix) {
			continue
		}
		h, _, failed := attach.OpenLink(store.Path("", name))
		if failed == nil {
			failed = h.Close()
		}
		err = errors.Join(err, failed)
	}
	return err
}
