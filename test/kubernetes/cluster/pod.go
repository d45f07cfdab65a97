// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/jeoul/jeoul/internal/host/namespace"
)

// restartDelay is how long a container that ended waits for its next start.
const restartDelay = time.Second

// namespaceOfPod is the network of a pod: a namespace of its own, which has no name and is gone with this process, or
// its node's.
type namespaceOfPod struct {
	// netns is nil where the pod has its node's network.
	netns      *namespace.Namespace
	number     int
	ipv4, ipv6 netip.Addr
	// do calls a function in the namespace.
	do func(func() error) error
}

// container is a container of a pod, and its process while it runs.
type container struct {
	spec     *corev1.Container
	process  *process
	started  time.Time
	restarts int32
	// last is how the process before ended.
	last  *corev1.ContainerStateTerminated
	ready bool
	probe *prober
}

// end asks for the end of a pod.
type end struct{ grace time.Duration }

// podWorker runs a pod. Its fields belong to the goroutine of run, but for ends.
type podWorker struct {
	kubelet    *kubelet
	pod        *corev1.Pod
	network    *namespaceOfPod
	containers []*container
	status     *statusWriter
	started    time.Time
	// ends has the last request to end that run has not seen.
	ends chan end
	// events are the events of containers.
	events chan event
}

// event is the end of a container's process, the time to start it again, or the outcome of a probe.
type event struct {
	container *container
	kind      eventKind
}

type eventKind int

const (
	processEnded eventKind = iota
	restartDue
	becameReady
	becameUnready
)

func newPodWorker(k *kubelet, pod *corev1.Pod) *podWorker {
	return &podWorker{kubelet: k, pod: pod, ends: make(chan end, 1), events: make(chan event, 16),
		status: newStatusWriter(k, pod)}
}

// sendEnd has the pod end; a later call replaces an earlier one. The kubelet's lock orders the calls.
func (w *podWorker) sendEnd(e end) {
	select {
	case <-w.ends:
	default:
	}
	w.ends <- e
}

// run serves the pod from its start to its end.
func (w *podWorker) run() {
	w.kubelet.running.Go(w.status.run)
	defer w.status.stop()
	defer w.tearDown()
	if err := w.setUp(); err != nil {
		w.kubelet.log.Error("start a pod", "pod", w.name(), "error", err)
		w.publishFailure(err)
	}
	for {
		select {
		case <-w.kubelet.ctx.Done():
			w.killAll()
			return
		case e := <-w.ends:
			w.terminate(e)
			return
		case e := <-w.events:
			w.handle(e)
		}
	}
}

func (w *podWorker) name() string { return w.pod.Namespace + "/" + w.pod.Name }

// setUp makes the network of the pod and starts its containers.
func (w *podWorker) setUp() error {
	w.started = time.Now()
	if len(w.pod.Spec.InitContainers) > 0 {
		return fmt.Errorf("this cluster has no pods with initContainers")
	}
	if err := w.makeVolumes(); err != nil {
		return err
	}
	if err := w.makeNetwork(); err != nil {
		return err
	}
	for i := range w.pod.Spec.Containers {
		c := &container{spec: &w.pod.Spec.Containers[i]}
		w.containers = append(w.containers, c)
		if err := w.start(c); err != nil {
			return err
		}
	}
	w.publish()
	return nil
}

func (w *podWorker) makeNetwork() error {
	if host := w.kubelet.node.Host; w.pod.Spec.HostNetwork {
		w.network = &namespaceOfPod{ipv4: host.IPv4, ipv6: host.IPv6, do: host.Do}
		return nil
	}
	number, ipv4, ipv6, err := w.kubelet.takeAddresses()
	if err != nil {
		return err
	}
	w.network = &namespaceOfPod{number: number, ipv4: ipv4, ipv6: ipv6}
	if w.network.netns, err = namespace.New(); err != nil {
		return err
	}
	w.network.do = w.network.netns.Do
	return w.kubelet.node.devicePod(fmt.Sprintf("pod%d", number), w.network)
}

// start starts a container's process, and its probe.
func (w *podWorker) start(c *container) error {
	command, err := w.kubelet.node.cluster.program(c.spec.Image)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(w.kubelet.node.Host.Dir, w.pod.Name+"-"+c.spec.Name+".log"),
		os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	arguments := command[1:len(command):len(command)]
	for _, argument := range c.spec.Args {
		arguments = append(arguments, w.located(c.spec, argument))
	}
	cmd := exec.Command(command[0], arguments...)
	for _, variable := range environment(w.pod, c.spec, w.network.ipv4) {
		name, value, _ := strings.Cut(variable, "=")
		cmd.Env = append(cmd.Env, name+"="+w.located(c.spec, value))
	}
	cmd.Stdout, cmd.Stderr = log, log
	if c.process, err = startIn(w.network.do, cmd); err != nil {
		return fmt.Errorf("start container %s: %w", c.spec.Name, err)
	}
	c.started = time.Now()
	w.kubelet.running.Go(func() {
		<-c.process.done
		w.send(event{c, processEnded})
	})
	c.ready = c.spec.ReadinessProbe == nil
	if !c.ready {
		c.probe = startProber(w, c)
	}
	return nil
}

// send hands an event to run, unless the pod has ended.
func (w *podWorker) send(e event) {
	select {
	case w.events <- e:
	case <-w.status.ended:
	case <-w.kubelet.ctx.Done():
	}
}

func (w *podWorker) handle(e event) {
	c := e.container
	switch e.kind {
	case becameReady, becameUnready:
		if c.process.running() {
			c.ready = e.kind == becameReady
		}
	case processEnded:
		c.probe.stop()
		c.ready, c.last = false, c.process.state(c.started)
		w.kubelet.log.Info("a container ended", "pod", w.name(), "container", c.spec.Name, "exit", c.last.ExitCode)
		if w.pod.Spec.RestartPolicy == corev1.RestartPolicyAlways {
			time.AfterFunc(restartDelay, func() { w.send(event{c, restartDue}) })
		}
	case restartDue:
		c.restarts++
		if err := w.start(c); err != nil {
			w.kubelet.log.Error("start a container again", "pod", w.name(), "error", err)
		}
	}
	w.publish()
}

// terminate ends the pod as a kubelet does: the preStop hooks, SIGTERM, and SIGKILL at the end of the grace period,
// which later requests may shorten. Its object is deleted when all processes are gone.
func (w *podWorker) terminate(e end) {
	began := time.Now()
	w.kubelet.log.Info("a pod ends", "pod", w.name(), "grace", e.grace)
	for _, c := range w.containers {
		if c.process != nil {
			time.AfterFunc(preStop(c.spec, e.grace), func() { c.process.signal(syscall.SIGTERM) })
		}
	}
	deadline := time.NewTimer(e.grace)
	defer deadline.Stop()
	gone := make(chan struct{})
	w.kubelet.running.Go(func() {
		defer close(gone)
		for _, c := range w.containers {
			if c.process != nil {
				<-c.process.done
			}
		}
	})
	for ended := false; !ended; {
		select {
		case <-gone:
			ended = true
		case <-deadline.C:
			w.killAll()
		case <-w.kubelet.ctx.Done():
			w.killAll()
			return
		case e := <-w.ends:
			deadline.Reset(max(0, e.grace-time.Since(began)))
		case <-w.events:
		}
	}
	for _, c := range w.containers {
		c.probe.stop()
		c.ready = false
		if c.process != nil {
			c.last = c.process.state(c.started)
		}
	}
	w.publishEnd()
}

// preStop returns how long a container's preStop hook sleeps, within the grace period.
func preStop(spec *corev1.Container, grace time.Duration) time.Duration {
	if spec.Lifecycle == nil || spec.Lifecycle.PreStop == nil || spec.Lifecycle.PreStop.Sleep == nil {
		return 0
	}
	return min(grace, time.Duration(spec.Lifecycle.PreStop.Sleep.Seconds)*time.Second)
}

// killAll kills the processes and waits until they are gone.
func (w *podWorker) killAll() {
	for _, c := range w.containers {
		if c.process != nil {
			c.process.signal(syscall.SIGKILL)
			<-c.process.done
		}
	}
}

// tearDown takes the network away.
func (w *podWorker) tearDown() {
	for _, c := range w.containers {
		c.probe.stop()
	}
	if w.network == nil || w.pod.Spec.HostNetwork {
		return
	}
	if w.network.netns != nil {
		// The namespace goes with its last reference, and its end of the link with it.
		w.network.netns.Close()
	}
	w.kubelet.giveBack(w.network.number)
}

// process is a process in the namespace of a pod. It is killed when this process dies.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// startIn starts a command from a thread in a namespace, which waits for its end: the death signal comes with the death
// of the thread that started a process.
func startIn(inNamespace func(func() error) error, cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		err := inNamespace(func() error {
			if err := cmd.Start(); err != nil {
				return err
			}
			started <- nil
			cmd.Wait() // how it ended is in ProcessState
			close(p.done)
			return nil
		})
		if err != nil {
			started <- err
		}
	}()
	return p, <-started
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// signal signals the process if it has not ended.
func (p *process) signal(s syscall.Signal) { p.cmd.Process.Signal(s) }

// state is how the process ended.
func (p *process) state(started time.Time) *corev1.ContainerStateTerminated {
	state := &corev1.ContainerStateTerminated{StartedAt: metaTime(started), FinishedAt: metaTime(time.Now()),
		Reason: "Completed"}
	if status := p.cmd.ProcessState; status != nil {
		state.ExitCode = int32(status.ExitCode())
		if wait, ok := status.Sys().(syscall.WaitStatus); ok && wait.Signaled() {
			state.Signal = int32(wait.Signal())
			state.ExitCode = 128 + state.Signal
		}
	}
	if state.ExitCode != 0 {
		state.Reason = "Error"
	}
	return state
}

// prober asks whether a container is ready.
type prober struct{ cancel context.CancelFunc }

func (p *prober) stop() {
	if p != nil {
		p.cancel()
	}
}

func startProber(w *podWorker, c *container) *prober {
	ctx, cancel := context.WithCancel(w.kubelet.ctx)
	w.kubelet.running.Go(func() { probeContainer(ctx, w, c) })
	return &prober{cancel}
}

// probeContainer asks with the period, the delay and the thresholds of the probe, and sends the verdicts.
func probeContainer(ctx context.Context, w *podWorker, c *container) {
	probe := c.spec.ReadinessProbe
	wait := time.NewTimer(time.Duration(probe.InitialDelaySeconds) * time.Second)
	defer wait.Stop()
	var good, bad int32
	ready := false
	for {
		select {
		case <-wait.C:
		case <-ctx.Done():
			return
		}
		if ask(ctx, w, c) {
			good, bad = good+1, 0
		} else {
			good, bad = 0, bad+1
		}
		switch {
		case ctx.Err() != nil:
			return
		case !ready && good >= max(1, probe.SuccessThreshold):
			ready = true
			w.send(event{c, becameReady})
		case ready && bad >= ptrOr(probe.FailureThreshold, 3):
			ready = false
			w.send(event{c, becameUnready})
		}
		wait.Reset(time.Duration(ptrOr(probe.PeriodSeconds, 10)) * time.Second)
	}
}

func ptrOr(value, byDefault int32) int32 {
	if value == 0 {
		return byDefault
	}
	return value
}
