// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/jeoul/jeoul/internal/balancer/proxy/master"
	"github.com/jeoul/jeoul/internal/host/durable"
)

// gauges are HAProxy's numbers that rise and fall; all others are counters, which start at 0 with each worker.
var gauges = map[string]bool{"qcur": true, "scur": true}

// numbers are the counters and gauges of an object, by HAProxy's names.
type numbers = map[string]uint64

// counterTotals adds up the workers' counters, those of ended workers included.
type counterTotals struct {
	mu sync.Mutex
	// ended are the counts of ended workers, and of objects from before their counters were reset.
	ended map[master.Object]numbers
	// live has the last statistics of each worker that runs.
	live map[int]master.Statistics
}

// update stores the workers' counters; workers that are not in the map have ended. It reports whether ended counts have
// changed, which HAProxy no longer has.
func (t *counterTotals) update(workers map[int]master.Statistics) (settled bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended == nil {
		t.ended = map[master.Object]numbers{}
	}
	for pid, before := range t.live {
		now := workers[pid]
		for object, was := range before {
			settled = t.keepReset(object, was, now[object]) || settled
		}
	}
	t.live = workers
	return settled
}

// setWorker stores the counters of a worker.
func (t *counterTotals) setWorker(pid int, counted master.Statistics) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live == nil {
		t.live = map[int]master.Statistics{}
	}
	t.live[pid] = counted
}

// worker returns the last statistics of a worker.
func (t *counterTotals) worker(pid int) master.Statistics {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.live[pid]
}

// keepReset adds the previous counts of an object whose counters were reset to ended, and reports whether they were.
func (t *counterTotals) keepReset(object master.Object, was, now numbers) bool {
	restarted := now == nil
	for name, n := range now {
		restarted = restarted || !gauges[name] && n < was[name]
	}
	if !restarted {
		return false
	}
	sum := t.ended[object]
	if sum == nil {
		sum = numbers{}
		t.ended[object] = sum
	}
	for name, n := range was {
		if !gauges[name] {
			sum[name] += n
		}
	}
	return true
}

// sums returns the sums over all workers, by object.
func (t *counterTotals) sums() map[master.Object]numbers {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[master.Object]numbers, len(t.ended))
	add := func(object master.Object, more numbers) {
		sum := all[object]
		if sum == nil {
			sum = make(numbers, len(more))
			all[object] = sum
		}
		for name, n := range more {
			sum[name] += n
		}
	}
	for object, n := range t.ended {
		add(object, n)
	}
	for _, worker := range t.live {
		for object, n := range worker {
			add(object, n)
		}
	}
	return all
}

// prune drops the counts of objects that are no longer configured, and that no worker has.
func (t *counterTotals) prune(r *Rendering) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := map[master.Object]bool{}
	for _, b := range r.Blocks {
		for _, s := range b.Servers {
			known[master.Object{Section: b.Pool, Server: s.Name}] = true
		}
		known[master.Object{Section: b.Pool, Server: master.Backend}] = true
		known[master.Object{Section: b.frontendName(), Server: master.Frontend}] = true
	}
	for _, worker := range t.live {
		for object := range worker {
			known[object] = true
		}
	}
	for object := range t.ended {
		if !known[object] {
			delete(t.ended, object)
		}
	}
}

// frontendName returns the block's name if it is a section "frontend".
func (b Block) frontendName() string {
	for _, text := range b.Lines {
		if name, is := strings.CutPrefix(text, "frontend "); is {
			return name
		}
	}
	return ""
}

// storedCount is an object's numbers in the file.
type storedCount struct {
	master.Object
	Numbers numbers `json:"numbers"`
}

// storedCounts is the content of the file.
type storedCounts struct {
	Past []storedCount         `json:"past,omitempty"`
	Live map[int][]storedCount `json:"live,omitempty"`
}

func listed(all map[master.Object]numbers) (list []storedCount) {
	for object, n := range all {
		list = append(list, storedCount{object, n})
	}
	return list
}

func read(list []storedCount) map[master.Object]numbers {
	all := map[master.Object]numbers{}
	for _, s := range list {
		all[s.Object] = s.Numbers
	}
	return all
}

// save writes the totals into a file.
func (t *counterTotals) save(to *durable.Content) error {
	t.mu.Lock()
	file := storedCounts{Past: listed(t.ended), Live: map[int][]storedCount{}}
	for pid, worker := range t.live {
		file.Live[pid] = listed(worker)
	}
	t.mu.Unlock()
	contents, err := json.Marshal(file)
	if err == nil {
		err = to.Save(contents)
	}
	if err != nil && !durable.Unwritable(err) {
		return fmt.Errorf("keeping the counters of HAProxy: %v", err)
	}
	return nil
}

// load reads the counts of another process; there are none without a file, or with one that cannot be read.
func (t *counterTotals) load(path string) {
	var file storedCounts
	contents, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(contents, &file) != nil {
		return
	}
	t.ended, t.live = read(file.Past), map[int]master.Statistics{}
	for pid, worker := range file.Live {
		t.live[pid] = read(worker)
	}
}
