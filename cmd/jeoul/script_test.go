// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdtest"
	bgpcommand "github.com/jeoul/jeoul/internal/balancer/bgp/command"
	"github.com/jeoul/jeoul/internal/test/testcert"
	"github.com/jeoul/jeoul/internal/test/testdisk"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/test/testkill"
)

// actAsJeoul is an environment variable that makes a copy of this test binary run as the program, for tests that start
// it themselves.
const actAsJeoul = "JEOUL_TEST_ACT_AS_JEOUL"

// programs maps names in PATH to the programs that this test binary runs under them.
var programs = map[string]func(){"jeoul": main, "jeoul-bgp": func() {
	if err := bgpcommand.Run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "jeoul-bgp: %v\n", err)
		os.Exit(1)
	}
}}

// TestMain makes this test binary run the programs of the scripts.
func TestMain(m *testing.M) {
	if os.Getenv(actAsJeoul) != "" {
		if err := testdisk.Report(); err != nil {
			panic(err)
		}
		if testkill.IsVictim() {
			if err := errors.Join(testkill.Report(), testkill.Begin()); err != nil {
				panic(err)
			}
		}
		if run := programs[filepath.Base(os.Args[0])]; run != nil {
			run()
		} else {
			main()
		}
		return
	}
	// In a script this is the program, whose flags are not those of the tests.
	if programs[filepath.Base(os.Args[0])] == nil {
		testenv.Parallel(4)
	}
	testscript.Main(m, programs)
}

// TestScripts runs testdata/script/*.txtar: the program as a person types it.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: *cmdtest.Update,
	})
}

// TestRootScripts runs testdata/root/*.txtar, whose commands make their own network namespaces. Commands after [matrix]
// run only in `make test-matrix`.
func TestRootScripts(t *testing.T) {
	testenv.Also(t, matrixTarget)
	testenv.Root(t)
	t.Parallel()
	for _, program := range []string{"ip", "unshare", "setpriv", "curl", "nginx"} {
		testenv.Program(t, program)
	}
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/root",
		UpdateScripts: *cmdtest.Update,
		Condition: func(name string) (bool, error) {
			if name != "matrix" {
				return false, fmt.Errorf("unknown condition %q", name)
			}
			return testenv.InTarget(matrixTarget), nil
		},
		Setup: func(env *testscript.Env) error {
			// By its run, scripts/sweep finds the processes that a script has started.
			env.Vars = append(env.Vars, "PATH="+os.Getenv("PATH"),
				testenv.RunVariable+"="+os.Getenv(testenv.RunVariable))
			writeCertificates(t, env.WorkDir)
			return nil
		},
	})
}

// writeCertificates writes the certificates of a server at 127.0.0.1 and of a client, their keys, and their authority.
func writeCertificates(t *testing.T, dir string) {
	t.Helper()
	ca := testcert.NewAuthority(t)
	ca.Write(t, pkix.Name{CommonName: "lb1"}, 90*24*time.Hour, filepath.Join(dir, "lb.crt"),
		filepath.Join(dir, "lb.key"))
	ca.Write(t, pkix.Name{CommonName: "kim", OrganizationalUnit: []string{"operators"}}, time.Hour,
		filepath.Join(dir, "kim.crt"), filepath.Join(dir, "kim.key"))
	if err := os.Rename(ca.File, filepath.Join(dir, "ca.pem")); err != nil {
		t.Fatal(err)
	}
}
