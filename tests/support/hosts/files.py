"""What a healthy machine's files and commands say; Debian with driver 580 and CUDA 12.8."""

from __future__ import annotations

DRIVER = "580.65.06"
KERNEL = "6.1.0-30-amd64"
_LIB = "/usr/lib/x86_64-linux-gnu"

HEALTHY = {
    "/etc/ironworks/host.toml": (
        '[gpu]\ncount = 1\n\n[cuda]\nversion = "12.8"\n\n[torch.flags]\nUSE_CUDA = "1"\n'
        'USE_CUDNN = "ON"\n\n[serving]\nenvironment = ["IRONWORKS_STATE"]\n\n[python]\n'
        'environment = "/opt/ironworks/.venv"\nlock = "/opt/ironworks/requirements/default.txt"\n'
    ),
    "/proc/modules": f"nvidia_uvm 1 0 - Live\nnvidia 1 1 nvidia_uvm - Live {DRIVER}\n",
    "/proc/swaps": "Filename Type Size Used Priority\n/dev/sda2 partition 8388604 0 -2\n",
    "/proc/mounts": "/dev/sda1 / ext4 rw,relatime 0 0\ntmpfs /dev/shm tmpfs rw,size=8g 0 0\n",
    "/proc/stat": "cpu 1 2 3\nbtime 1700000000\n",
    "/proc/net/netstat": "TcpExt: SyncookiesSent ListenOverflows\nTcpExt: 0 0\n",
    "/proc/net/snmp": "Tcp: OutSegs RetransSegs\nTcp: 1000000 12\n",
    "/proc/pressure/cpu": "some avg10=1.50 avg60=1.00 avg300=0.50 total=1\n",
    "/proc/pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n",
    "/proc/pressure/io": "some avg10=0.10 avg60=0.00 avg300=0.00 total=1\n",
    "/proc/sys/kernel/hostname": "gpu-01\n",
    "/proc/sys/kernel/osrelease": f"{KERNEL}\n",
    "/proc/sys/kernel/random/boot_id": "5f0c1a4e-0000-4000-8000-000000000001\n",
    "/proc/sys/kernel/pid_max": "4194304\n",
    "/proc/sys/kernel/numa_balancing": "0\n",
    "/proc/sys/vm/swappiness": "10\n",
    "/proc/sys/vm/overcommit_memory": "0\n",
    "/proc/sys/vm/max_map_count": "1048576\n",
    "/proc/sys/net/core/somaxconn": "4096\n",
    "/proc/sys/net/ipv4/tcp_retries2": "15\n",
    "/proc/sys/fs/file-nr": "2048\t0\t9223372\n",
    "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "/sys/kernel/mm/transparent_hugepage/defrag": "always defer [madvise] never\n",
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
    "/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n",
    f"/lib/modules/{KERNEL}/updates/dkms/nvidia.ko.xz": "",
    f"/lib/modules/{KERNEL}/kernel/fs/ext4/ext4.ko": "",
    "/var/lib/dpkg/status": (
        "Package: nvidia-driver-580\nStatus: hold ok installed\n\n"
        "Package: bash\nStatus: install ok installed\n"
    ),
    "/dev/nvidiactl": "",
    "/dev/nvidia-uvm": "",
    f"{_LIB}/libcuda.so.{DRIVER}": "",
    f"{_LIB}/libnvidia-ml.so.{DRIVER}": "",
    "/usr/local/cuda-12.8/version.json": '{"cuda": {"name": "CUDA SDK", "version": "12.8.1"}}',
    "/usr/local/cuda-12.8/include/cuda.h": "#define CUDA_VERSION 12080\n",
    "/usr/local/cuda-12.8/include/crt/host_config.h": (
        "#error -- unsupported GNU version! gcc versions later than 14 are not supported!\n"
    ),
    "/usr/local/cuda-13.0/version.json": '{"cuda": {"name": "CUDA SDK", "version": "13.0.0"}}',
    "/usr/include/cudnn_version.h": (
        "#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 8\n#define CUDNN_PATCHLEVEL 0\n"
    ),
    "/etc/systemd/journald.conf": "[Journal]\n#SystemMaxUse=\nSystemMaxUse=4G\n",
    "/etc/systemd/system/ironworks-serving@.service": (
        "[Service]\nEnvironmentFile=/etc/ironworks/serving.env\nMemoryMax=64G\n"
        "LimitNOFILE=65536\nExecStart=/opt/ironworks/.venv/bin/ironworks serve --port %i\n"
    ),
    "/etc/ironworks/serving.env": "IRONWORKS_STATE=/var/lib/ironworks\n",
}

LINKS = {
    f"{_LIB}/libcuda.so.1": f"libcuda.so.{DRIVER}",
    f"{_LIB}/libnvidia-ml.so.1": f"libnvidia-ml.so.{DRIVER}",
    "/usr/local/cuda": "/etc/alternatives/cuda",
    "/etc/alternatives/cuda": "/usr/local/cuda-12.8",
}

LIMITS = (
    "Limit                     Soft Limit           Hard Limit           Units\n"
    "Max locked memory         unlimited            unlimited            bytes\n"
    "Max open files            65536                65536                files\n"
)

MAPS = (
    "7f0000000000-7f0000001000 r-xp 00000000 08:01 1  /opt/ironworks/.venv/lib/python3.11/"
    "site-packages/nvidia/cudnn/lib/libcudnn.so.9\n"
)

DF = """\
case "$*" in
*/dev/shm*) echo "Mounted on 1B-blocks Avail Inodes IFree"
    echo "/dev/shm {shm} {shm} 100000 99990" ;;
*) echo "Mounted on 1B-blocks Avail Inodes IFree"
    echo "/ 2000000000000 1500000000000 120000000 119000000" ;;
esac
"""

# Where our server listens is written to the file `port` when it does.
SS = """\
port=$(cat "$FAKE_NVML_HOME/port")
case "$*" in
*established*)
    echo "0 0 127.0.0.1:$port 10.0.0.9:50112"
    printf '\\t cubic wscale:7,7 rto:204 {connection} cwnd:10\\n' ;;
*) echo "LISTEN {waiting} 2048 127.0.0.1:$port 0.0.0.0:*" ;;
esac
"""

COMMANDS = {
    "df": DF.format(shm=8 << 30),
    "ss": SS.format(connection="rtt:0.4/0.1", waiting=0),
    "gcc": "echo 12.2.0\n",
    "timedatectl": "echo yes\n",
    "journalctl": "exit 1\n",
    "systemd-analyze": "exit 0\n",
}

TORCH = {
    "version": "2.13.0+cu128",
    "cuda": "12.8",
    "cudnn": 90800,
    "library_folder": "/opt/ironworks/.venv/lib/python3.11/site-packages/torch/lib",
    "arch_list": ["sm_80", "sm_86", "sm_90", "compute_90"],
    "build_settings": {"USE_CUDA": "1", "USE_CUDNN": "1", "BUILD_TYPE": "Release"},
    "devices": [{"name": "NVIDIA H100", "capability": [9, 0]}],
    "device": "cuda:0",
    "tensor_bytes": 4194304,
    "graph": {"same": True, "error": ""},
    "cudnn_off": {"difference": 1e-6, "bound": 1e-3, "error": ""},
    "error": "",
}
