// SPDX-License-Identifier: Apache-2.0

package report

// koreanInstructions are about what is counted instead of timed, and about virtual
// machines.
var koreanInstructions = []phrase{
	{"how many instructions does a request take, and how many of them does each add to it", "요청 하나에 명령이 몇 개 들고, 그중 각각이 더하는 것은 몇 개인가"}, {"Instructions per connection", "연결당 명령 수"}, {"Instructions", "명령 수"}, {"per request", "요청당"}, {"Added to {}", "{1} 대비 추가"}, {"Added × {}", "추가 × {1}"},
	{"Of clients, balancer, servers, switch and kernel together, on one emulated processor whose clock counts them. They are instructions, and not cache misses, mispredicted branches or nanoseconds.", "시계가 명령을 세는 에뮬레이션 프로세서 하나에서 클라이언트, 밸런서, 서버, 스위치, 커널을 합한 것입니다. 명령 수이며 캐시 미스, 분기 예측 실패, 나노초가 아닙니다."},
	{"Added to {}: the difference of the medians. Added × a subject: that, as a multiple of what the subject adds.", "{1} 대비 추가: 중앙값의 차이. 추가 × 대상: 그 차이를 그 대상이 더하는 것의 배수로 나타낸 값."},
	{"The baseline {} has no valid trial under this load, so it is not known what the others add.", "기준선 {1}의 유효한 시행이 이 부하에 없어 나머지가 더하는 양을 알 수 없습니다."},
	{"{}: {} adds {n} instructions to a request.", "{1}: {2}, 요청당 명령 {3}개 추가."}, {"{}: {} adds {n} instructions to a request (over {n} points).", "{1}: {2}, 요청당 명령 {3}개 추가({4}개 지점)."}, {"{} ≤ {n} × what {} adds ({})", "{1} ≤ {3} 추가량의 {2}배 ({4})"},
	{"Instructions, not time", "시간이 아니라 명령 수"}, {"One processor is emulated, and its clock advances with each instruction, whatever that is. Caches, branch prediction, memory bandwidth and other cores are not in the figures: they compare programs that do alike work, and commits of one program. What a packet costs on hardware is measured in nanoseconds, elsewhere.", "프로세서 하나를 에뮬레이션하며, 그 시계는 무엇이든 명령 하나마다 나아갑니다. 캐시, 분기 예측, 메모리 대역폭, 다른 코어는 수치에 없습니다. 비슷한 일을 하는 프로그램이나 한 프로그램의 커밋을 비교하는 데 씁니다. 하드웨어에서 패킷의 비용은 다른 곳에서 나노초로 잽니다."},
	{"What repeats", "무엇이 되풀이되는가"}, {"The figures do not depend on how fast or how busy the machine is. Repeats differ by where timers fall and by how processes happen to take turns: a difference smaller than the spread is no difference.", "수치는 기계가 얼마나 빠르거나 바쁜지에 달려 있지 않습니다. 반복은 타이머가 떨어지는 곳과 프로세스가 번갈아 도는 순서 때문에 달라집니다. 산포보다 작은 차이는 차이가 아닙니다."},
	// The machine.
	{"Virtual machine", "가상 머신"}, {"Its host", "호스트 기계"}, {"with KVM", "KVM 사용"}, {"emulated (TCG)", "에뮬레이션(TCG)"}, {"one processor whose clock counts instructions", "시계가 명령을 세는 프로세서 하나"}, {"clock source {}", "클럭 소스 {1}"},
	{"KVM cannot be used here ({})", "여기서 KVM을 쓸 수 없음({1})"}, {"open /dev/kvm: no such file or directory", "/dev/kvm 없음"}, {"open /dev/kvm: permission denied", "/dev/kvm 권한 없음"}, {"with KVM the kernel did not boot within {}", "KVM으로는 커널이 부팅되지 않음, 기다린 시간 {1}"},
	// Notes.
	{"time is a count of instructions: one processor is emulated, whose clock advances by a nanosecond with each instruction, whatever that instruction is, and leaps over idle time to the next timer. Caches, branch prediction, memory bandwidth and other cores are not in it: what a packet costs on real hardware is another question", "시간은 명령 수: 프로세서 하나를 에뮬레이션하며, 시계는 무슨 명령이든 하나마다 1나노초 나아가고 유휴 시간은 다음 타이머까지 건너뜀. 캐시, 분기 예측, 메모리 대역폭, 다른 코어는 들지 않음: 실제 하드웨어에서 패킷의 비용은 다른 문제"},
	{"an instruction count per request is the time from the first request to the last answer, by that count, divided by the good requests; clients, servers, switch and kernel are in it, and what a balancer adds to it is the difference to direct", "요청당 명령 수는 그렇게 센 첫 요청부터 마지막 응답까지의 시간을 좋은 요청 수로 나눈 것; 클라이언트, 서버, 스위치, 커널이 들며, 밸런서가 더하는 것은 direct와의 차이"},
	{"before the load the run waits until the balancer's host has been quiet for a second, so that what a daemon does after its start is not in the figures; a trial in which the processor idled more than {n} % of the time is not valid, for then time was more than instructions", "부하 전에 밸런서의 호스트가 1초 동안 조용할 때까지 기다려 데몬이 시작 뒤에 하는 일은 수치에 들지 않음; 프로세서가 {1} % 넘게 논 시행은 시간이 명령 수보다 컸으므로 유효하지 않음"},
	{"the kernel's packet work is not measured device by device, which would itself cost instructions, and so CPU is not given by host", "커널의 패킷 작업을 장치별로 재는 것 자체에 명령이 들어 재지 않으므로 CPU를 호스트별로 보이지 않음"},
	{"CPU times are those of processes, with the packet work of other hosts that ran on top of them", "CPU 시간은 그 위에서 돈 다른 호스트의 패킷 작업을 포함한 프로세스의 것"},
	{"unknown, for one processor does everybody's work", "알 수 없음, 프로세서 하나가 모두의 일을 함"}, {"the processor idled {n} % of the time: more connections at once would keep it busy", "프로세서가 시간의 {1} % 동안 놀았음: 동시 연결이 더 많아야 바쁘게 유지됨"}, {"the balancer's host was not quiet within {} after its start", "밸런서의 호스트가 시작 뒤 {1} 안에 조용해지지 않음"},
}
