// SPDX-License-Identifier: Apache-2.0

package localsockets

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/jeoul/jeoul/internal/balancer/datapath/attach"
	"github.com/jeoul/jeoul/internal/balancer/datapath/keeper"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
	"github.com/jeoul/jeoul/internal/balancer/datapath/pins"
)

// Find opens the programs that another process has left attached to sockets. It detaches an incomplete set; the next
// change attaches programs again if they are configured.
func Find(store *pins.Store, set uint64) (*Sockets, error) {
	s := &Sockets{holds: make([]attach.Hold, len(socketHooks)), programs: make([]*ebpf.Program, len(socketHooks))}
	names, err := store.Links()
	if err != nil {
		return nil, err
	}
	opened, any := 0, false
	for _, name := range names {
		if !strings.HasPrefix(name, keeper.SocketPrefix) {
			continue
		}
		any = true
		if s.open(store.Path("", name), name) {
			opened++
		}
	}
	if !any {
		return nil, nil
	}
	if opened == len(socketHooks) {
		if err := s.openMaps(store, set); err == nil {
			return s, nil
		}
	}
	s.CloseUnless(nil)
	return nil, errors.Join(attach.CloseAll(compact(s.holds)), removeSocketLinks(store))
}

// open opens a link; false where it belongs to another control group than the links before, or is unusable.
func (s *Sockets) open(path, name string) bool {
	var id uint64
	var program string
	if n, err := fmt.Sscanf(name, keeper.SocketPrefix+"%d-%s", &id, &program); n != 2 || err != nil {
		return false
	}
	hook := hookNamed(program)
	if hook < 0 || s.holds[hook] != nil || s.id != 0 && s.id != id {
		return false
	}
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return false
	}
	info, err := l.Info()
	if err == nil {
		s.programs[hook], err = ebpf.NewProgramFromID(info.Program)
	}
	if err != nil {
		l.Close()
		return false
	}
	s.id, s.holds[hook] = id, attach.PinnedLink{Link: l}
	return true
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
