// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"unsafe"

	"github.com/jeoul/jeoul/internal/balancer/datapath/mapmem"
	"github.com/jeoul/jeoul/internal/balancer/datapath/objects"
)

// TestServicesAreNotSparse lays out services that differ in one part only, as
// real ones do: the table must not have to grow much to tell them apart.
func TestServicesAreNotSparse(t *testing.T) {
	const n = 4096
	four, six := netip.MustParseAddr("198.18.0.0").As4(), netip.MustParseAddr("2001:2::").As16()
	for at := range 3 {
		var keys []slotKey
		for i := range n {
			address := four
			address[at], address[at+1] = byte(i>>8), byte(i)
			keys = append(keys, keyOf(netip.AddrFrom4(address), 80, 6))
		}
		expectDense(t, keys)
	}
	for at := range 15 {
		var keys []slotKey
		for i := range n {
			address := six
			address[at], address[at+1] = byte(i>>8), byte(i)
			keys = append(keys, keyOf(netip.AddrFrom16(address), 80, 6))
		}
		expectDense(t, keys)
	}
	var ports4, ports6 []slotKey
	for i := range n {
		ports4 = append(ports4, keyOf(netip.AddrFrom4(four), uint16(1+i), 6))
		ports6 = append(ports6, keyOf(netip.AddrFrom16(six), uint16(1+i), 6))
	}
	expectDense(t, ports4)
	expectDense(t, ports6)
}

func expectDense(t *testing.T, keys []slotKey) {
	t.Helper()
	p, err := openAddress(keys)
	if err != nil {
		t.Fatal(err)
	}
	// Four times the keys is the least; random hashes need that, seldom double.
	if int(p.size) > 8*len(keys) {
		t.Errorf("%d keys need %d slots", len(keys), p.size)
	}
}

// TestHashTableIsBounded gives it more keys than there are probes, all of which fall
// on each other.
func TestHashTableIsBounded(t *testing.T) {
	var keys []slotKey
	for i := uint64(0); len(keys) <= int(serviceProbes); i++ {
		// In a table of any size the search for it begins at the first slot.
		if key := (slotKey{i}); hashOf(key)>>12 == 0 {
			keys = append(keys, key)
		}
	}
	if _, err := openAddress(keys); err == nil {
		t.Error("keys with one hash were laid out beyond the probes")
	}
}

// TestKeysAreThoseOfC compares the words of a key with the struct that the program
// compares.
func TestKeysAreThoseOfC(t *testing.T) {
	key4 := objects.XDPServiceKey4{Address: mapmem.OfAddress(vip4)[0], Port: mapmem.NetworkOrder(8080), Protocol: 17}
	if got, want := keyOf(vip4, 8080, 17)[0], *(*uint64)(unsafe.Pointer(&key4)); got != want {
		t.Errorf("IPv4: %x, want %x", got, want)
	}
	key6 := objects.XDPServiceKey6{Address: mapmem.OfAddress(vip6), Port: mapmem.NetworkOrder(8080), Protocol: 17}
	if got, want := keyOf(vip6, 8080, 17), *(*slotKey)(unsafe.Pointer(&key6)); got != want {
		t.Errorf("IPv6: %x, want %x", got, want)
	}
}

// search looks a key up as find_service4 and find_service6 of bpf/balancer/choose/select.h do. It
// returns the first word of the value.
func (d *directory) search(key slotKey) (word uint64, found bool) {
	start := hashOf(key) >> hashShift(d.mask+1)
	for probe := range serviceProbes {
		element := d.element((start + probe) & d.mask)
		same, empty := true, true
		for i := range d.keyWords() {
			same = same && element.Load(i) == key[i]
		}
		if d.six {
			empty = element.Load(0)|element.Load(1) == 0
		} else {
			empty = uint32(element.Load(0)) == 0
		}
		if same {
			return element.Load(d.keyWords()), true
		}
		if empty {
			return 0, false
		}
	}
	return 0, false
}

// manualGrace returns grace periods that pass when the test says so.
func manualGrace() *grace {
	g := newGrace(&sync.Mutex{})
	g.running, g.synchronize = true, func() {}
	return g
}

// TestDirectoryChanges puts, replaces and removes keys at random, and finds after each
// step what a map holds.
func TestDirectoryChanges(t *testing.T) {
	for _, six := range []bool{false, true} {
		const size = 64
		rng := rand.New(rand.NewPCG(1, 2))
		d, later := newDirectory(make(mapmem.Storage, size*slotWords), size, six), manualGrace()
		want := map[slotKey]uint64{}
		refused := 0
		for step := range 20000 {
			address := netip.AddrFrom4([4]byte{198, 18, 0, byte(rng.IntN(24))})
			if six {
				address = netip.AddrFrom16([16]byte{0x20, 1, 15: byte(rng.IntN(24))})
			}
			key := keyOf(address, 80, 6)
			switch rng.IntN(4) {
			case 0:
				d.remove(key, later)
				delete(want, key)
			case 1:
				later.wait()
			default:
				slot, ok := d.reserve(key)
				if !ok {
					// Too many have gone lately.
					refused++
					later.wait()
					continue
				}
				if rng.IntN(8) == 0 {
					d.cancel(slot)
					continue
				}
				want[key] = uint64(step + 1)
				d.publish(key, slot, mapmem.Storage{uint64(step + 1)}, later)
			}
			for i := range 24 {
				address := address.AsSlice()
				address[len(address)-1] = byte(i)
				a, _ := netip.AddrFromSlice(address)
				key := keyOf(a, 80, 6)
				word, found := d.search(key)
				if wanted, there := want[key]; found != there || word != wanted {
					t.Fatalf("six %t, step %d: %v has %d (found %t), want %d (%t)", six, step, a, word, found, wanted, there)
				}
			}
		}
		if refused > 200 {
			t.Errorf("six %t: no slot %d times", six, refused)
		}
	}
}

// TestDirectorySearchedMeanwhile replaces values under keys that are there all the
// time, while another goroutine searches: each search must find one of the values that the key
// has had, whole.
func TestDirectorySearchedMeanwhile(t *testing.T) {
	const size, keys = 32, 6
	d := newDirectory(make(mapmem.Storage, size*slotWords), size, true)
	var mu sync.Mutex
	later := newGrace(&mu)
	// A reader holds this for as long as it searches; a grace period takes it.
	var readers sync.RWMutex
	later.running = true
	later.synchronize = func() {
		readers.Lock()
		defer readers.Unlock()
	}
	all := make([]slotKey, keys)
	for i := range all {
		all[i] = keyOf(netip.AddrFrom16([16]byte{0x20, 1, 15: byte(i)}), 80, 6)
		slot, _ := d.reserve(all[i])
		d.publish(all[i], slot, mapmem.Storage{uint64(i), uint64(i), uint64(i)}, later)
	}
	var group sync.WaitGroup
	stop := make(chan struct{})
	group.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			key := i % keys
			readers.RLock()
			word, found := d.search(all[key])
			readers.RUnlock()
			if !found || int(word)%keys != key {
				t.Errorf("key %d: found %t, value %d", key, found, word)
				return
			}
		}
	})
	for i := range 20000 {
		key := i % keys
		slot, ok := d.reserve(all[key])
		if !ok {
			later.wait()
			continue
		}
		v := uint64(i*keys + key)
		d.publish(all[key], slot, mapmem.Storage{v, v, v}, later)
	}
	close(stop)
	group.Wait()
}

// TestKeysAppearWhole goes through every moment in which a key comes, goes or makes room:
// no packet's key, which has zeros where it is padded, is met that is not the one, and
// searches for others go on.
func TestKeysAppearWhole(t *testing.T) {
	for _, six := range []bool{false, true} {
		d := newDirectory(make(mapmem.Storage, 32*slotWords), 32, six)
		key := keyOf(netip.MustParseAddr("198.18.0.1"), 80, 6)
		if six {
			key = keyOf(netip.MustParseAddr("2001:2::1"), 80, 6)
		}
		element := d.element(0)
		met := func() slotKey {
			k := slotKey{}
			copy(k[:d.keyWords()], element)
			return k
		}
		for _, change := range []struct {
			name  string
			steps []mapmem.Step
			// goesOn: a search does not end here at any moment between.
			goesOn bool
		}{
			{"comes", d.showing(key), false}, {"goes", d.hiding(), true}, {"comes again", d.showing(key), true},
			{"goes again", d.hiding(), true}, {"makes room", d.emptying(), false},
		} {
			first := met()
			for i, s := range change.steps {
				element.Store(s.At, s.Word)
				k, last := met(), i == len(change.steps)-1
				padded := six && k[2]>>24 != 0
				if !last && k != first && k != key && !padded && k != (slotKey{}) {
					t.Errorf("six %t: while it %s, a packet could meet %x", six, change.name, k)
				}
				if change.goesOn && (six && k[0]|k[1] == 0 || !six && uint32(k[0]) == 0) {
					t.Errorf("six %t: while it %s, searches end", six, change.name)
				}
			}
		}
		if met() != (slotKey{}) {
			t.Errorf("six %t: in the end there is %x", six, met())
		}
	}
}
