// SPDX-License-Identifier: Apache-2.0

package namespace_test

import (
	"errors"
	"net"
	"os"
	"runtime"
	"testing"

	"github.com/jeoul/jeoul/internal/host/namespace"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

func links(tb testing.TB, ns *namespace.Namespace) (names []string) {
	tb.Helper()
	testenv.In(tb, ns, func() error {
		nics, err := net.Interfaces()
		for _, nic := range nics {
			names = append(names, nic.Name)
		}
		return err
	})
	return names
}

func TestDo(t *testing.T) {
	testenv.Root(t)
	here, err := namespace.Current()
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	a, b := testenv.Namespace(t), testenv.Namespace(t)
	testenv.Veth(t, testenv.End{Namespace: a, Name: "only-a"}, testenv.End{Namespace: a, Name: "only-a2"})
	if got := links(t, a); len(got) != 3 {
		t.Errorf("a has %q", got)
	}
	if got := links(t, b); len(got) != 1 || got[0] != "lo" {
		t.Errorf("b has %q", got)
	}
	testenv.In(t, a, func() error {
		inside, err := namespace.Current()
		if err != nil {
			return err
		}
		if inside.Inode() != a.Inode() {
			t.Errorf("inside a is %d, not %d", inside.Inode(), a.Inode())
		}
		// From within another namespace, too.
		err = here.Do(func() error {
			_, err := net.InterfaceByName("only-a")
			if err == nil {
				return errors.New("a's link is seen from where the test runs")
			}
			return nil
		})
		return errors.Join(err, inside.Close())
	})
	if _, err := net.InterfaceByName("only-a"); err == nil {
		t.Error("the test's own thread has changed its namespace")
	}
}

func TestErrorsComeBack(t *testing.T) {
	ns := testenv.Namespace(t)
	if err := ns.Do(func() error { return os.ErrClosed }); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Do: %v", err)
	}
	if err := ns.Do(func() error { runtime.Goexit(); return nil }); err == nil {
		t.Error("work that ended early counts as done")
	}
	gone, err := namespace.New()
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	if err := gone.Do(func() error { return nil }); err == nil {
		t.Error("Do after Close is not an error")
	}
}

func TestCookie(t *testing.T) {
	a, b := testenv.Namespace(t), testenv.Namespace(t)
	cookieA, err1 := a.Cookie()
	cookieB, err2 := b.Cookie()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if cookieA == 0 {
		t.Skip("this kernel has no cookies of network namespaces (before 5.14)")
	}
	if cookieA == cookieB {
		t.Errorf("two namespaces have the cookie %d", cookieA)
	}
}
