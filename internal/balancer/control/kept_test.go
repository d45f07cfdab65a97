// SPDX-License-Identifier: Apache-2.0

package control

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// keeper is a data plane that outlives its process.
type keeper struct {
	*world
	note string
	err  error
}

func (k *keeper) Repin() (note string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	note, k.note = k.note, ""
	return note, k.err
}

func (k *keeper) becomes(note string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.note, k.err = note, err
}

// warnings counts the lines of the log that say it.
func (k *keeper) warnings(what string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return strings.Count(k.log.String(), what)
}

// TestKeptAgain: a pin that is lost is logged once, and so is that it is there again.
func TestKeptAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		k := &keeper{world: w}
		c := w.controller(web)
		c.opt.DataPlane = k
		stop := w.run(c)
		for _, step := range []struct {
			note         string
			err          error
			lost, pinned int
		}{
			{"", nil, 0, 0},
			{"", errors.New("no bpf file system"), 1, 0},
			{"", errors.New("no bpf file system"), 1, 0},
			{"it is pinned", nil, 1, 1},
			{"", nil, 1, 1},
			{"", errors.New("no bpf file system"), 2, 1},
		} {
			k.becomes(step.note, step.err)
			time.Sleep(repinInterval)
			synctest.Wait()
			if lost, pinned := k.warnings("ends with this process: no bpf file system"),
				k.warnings("it is pinned"); lost != step.lost || pinned != step.pinned {
				t.Errorf("%+v: it has logged %d losses and %d pins", step, lost, pinned)
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
